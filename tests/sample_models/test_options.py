"""Options of a spec: what is accepted, turned into its type, or refused by name."""

from functools import partial
from typing import Literal

import pytest

from landscape_cli.errors import AdapterError
from sample_models.options import accepted_options, bind, require_at_least, require_options


def build(
    name: str,
    *,
    count: int = 1,
    rate: float = 0.5,
    on: bool = False,
    sizes: tuple[int, ...] = (),
    plan: tuple[int | Literal["M"], ...] | None = None,
    kind: Literal["one-way", "other"] = "other",
    **rest: int,
):
    return name, count, rate, on, sizes, plan, kind, rest


ACCEPTED = accepted_options(build)


def test_named_parameters_are_the_options():
    assert list(ACCEPTED) == ["name", "count", "rate", "on", "sizes", "plan", "kind"]
    assert list(accepted_options(build, hidden=("name", "kind"))) == list(ACCEPTED)[1:-1]


def test_what_is_fixed_already_is_no_option():
    assert "count" not in accepted_options(partial(build, count=3))


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("count", 3, 3),
        ("rate", 2, 2),
        ("rate", 0.25, 0.25),
        ("on", True, True),
        ("on", "true", True),
        ("on", "false", False),
        ("sizes", 5, (5,)),
        ("sizes", (5, 6), (5, 6)),
        ("sizes", [5, 6], (5, 6)),
        ("sizes", "5,6", (5, 6)),
        ("sizes", (), ()),
        ("plan", None, None),
        ("plan", "8,M,16", (8, "M", 16)),
        ("plan", (8, "M"), (8, "M")),
        ("kind", "one-way", "one-way"),
        ("kind", "one_way", "one-way"),
    ],
)
def test_values_that_can_be_meant(name, value, bound):
    found = bind({name: value}, ACCEPTED, "it")[name]
    assert found == bound
    assert type(found) is type(bound)


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("count", "x", "give a whole number"),
        ("count", 1.5, "give a whole number"),
        ("count", True, "give a whole number"),
        ("count", None, "give a whole number"),
        ("rate", "x", "give a number"),
        ("rate", False, "give a number"),
        ("on", 1, "give True or False"),
        ("on", "yes", "give True or False"),
        ("name", 3, "give a text"),
        ("sizes", "5,x", "give a whole number, or several with commas between"),
        ("sizes", (5, 1.5), "give a whole number, or several with commas between"),
        ("plan", "8,N", "give a whole number or M, or several with commas between or None"),
        ("kind", "third", "give one-way, other"),
    ],
)
def test_values_that_cannot_be_meant(name, value, hint):
    with pytest.raises(AdapterError) as caught:
        bind({name: value}, ACCEPTED, "it")
    assert caught.value.what == f"the option {name!r} of it cannot be {value!r}"
    assert caught.value.seen == f"{name}={value}"
    assert caught.value.hint == hint


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AdapterError) as caught:
        bind({"cuont": 3}, ACCEPTED, "it")
    assert caught.value.what == "it has no option 'cuont'"
    assert caught.value.seen == "cuont=3"
    assert caught.value.hint == ", ".join(ACCEPTED)


def test_where_there_are_no_options_the_error_says_so():
    with pytest.raises(AdapterError) as caught:
        bind({"x": 3}, {}, "it")
    assert caught.value.hint == "it takes no options"


def test_an_option_without_default_is_needed():
    require_options(build, ["name"], "it")
    with pytest.raises(AdapterError, match="it needs the option 'name'") as caught:
        require_options(build, ["count"], "it")
    assert (caught.value.seen, caught.value.hint) == ("count", "name=NAME")


@pytest.mark.parametrize("value", [0, -3, float("nan")])
def test_a_value_below_the_limit_is_refused(value):
    require_at_least(1, count=1, other=2)
    with pytest.raises(AdapterError, match="the option 'count' is too small") as caught:
        require_at_least(1, other=2, count=value)
    assert (caught.value.seen, caught.value.hint) == (f"count={value}", "give 1 or more")
