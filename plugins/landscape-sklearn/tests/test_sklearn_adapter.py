"""The adapter against scikit-learn itself, its splits, and its refusals."""

import doctest
from importlib import metadata

import numpy as np
import pytest
import torch
from landscape_sklearn import SklearnDataset, adapter, open_dataset
from landscape_sklearn.dataset import Scaling
from sklearn import datasets

from landscape_cli import randomness
from landscape_cli.adapters.conformance import check_data_adapter
from landscape_cli.errors import AdapterError

CLASSIFICATION = ["digits", "breast_cancer", "wine", "iris"]
LOADERS = {
    "digits": datasets.load_digits,
    "breast_cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
    "iris": datasets.load_iris,
    "diabetes": lambda: datasets.load_diabetes(scaled=False),
}


def raw(name, **options):
    return open_dataset(name, split="all", standardise=False, dtype="float64", **options)


@pytest.mark.parametrize("name", LOADERS)
def test_unprepared_values_are_those_of_scikit_learn(name):
    bunch, data = LOADERS[name](), raw(name, flatten=True)
    inputs, targets = data.tensors
    assert np.array_equal(inputs.numpy(), bunch.data)
    assert np.array_equal(targets.numpy().reshape(-1), bunch.target)


def test_digits_are_images_with_a_channel_and_flatten_makes_them_vectors():
    images, vectors = open_dataset("digits"), open_dataset("digits", flatten=True)
    assert images.in_shape == (1, 8, 8)
    assert vectors.in_shape == (64,)
    assert torch.equal(images.tensors[0].flatten(1), vectors.tensors[0])


@pytest.mark.parametrize("name", LOADERS)
def test_train_and_test_are_disjoint_and_together_everything(name):
    train, test = open_dataset(name), open_dataset(name, split="test")
    both = np.concatenate([train.indices, test.indices])
    assert sorted(both) == list(range(len(open_dataset(name, split="all"))))
    assert abs(len(test) / len(both) - 0.2) < 0.01


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_every_class_has_its_share_in_both_parts(name):
    data = open_dataset(name, split="all")
    whole = torch.bincount(data.tensors[1]) / len(data)
    for split in ("train", "test"):
        part = open_dataset(name, split=split)
        share = torch.bincount(part.tensors[1], minlength=len(whole)) / len(part)
        # Stratified: a class is off by less than one sample of the part.
        assert (share - whole).abs().max() < 1 / len(part)


def test_the_split_depends_on_the_seed_alone():
    first, again, other = (open_dataset("wine", seed=seed).indices for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "iris", "diabetes"])
def test_tables_are_standardised_by_the_train_part_whatever_the_split(name):
    train, test = (open_dataset(name, split=s, dtype="float64") for s in ("train", "test"))
    plain = raw(name).tensors[0].numpy()
    fitted = plain[train.indices]
    for data in (train, test):
        wanted = (plain[data.indices] - fitted.mean(0)) / fitted.std(0)
        assert np.allclose(data.tensors[0].numpy(), wanted, rtol=0, atol=1e-12)
    assert train.tensors[0].mean(0).abs().max() < 1e-12
    assert test.tensors[0].mean(0).abs().max() > 1e-3


def test_images_share_one_mean_and_one_deviation():
    train = open_dataset("digits", dtype="float64")
    pixels = raw("digits").tensors[0].numpy()
    fitted = pixels[train.indices]
    wanted = (fitted - fitted.mean()) / fitted.std()
    assert np.allclose(train.tensors[0].numpy(), wanted, rtol=0, atol=1e-12)


def test_regression_targets_are_a_column_and_standardised_with_the_inputs():
    train = open_dataset("diabetes", dtype="float64")
    targets = train.tensors[1]
    assert targets.shape == (353, 1)
    assert targets.mean().abs() < 1e-12
    assert abs(float(targets.std(correction=0)) - 1) < 1e-12
    back = targets.numpy() * train.target_scaling.deviation + train.target_scaling.mean
    plain = raw("diabetes").tensors[1].numpy()[train.indices]
    assert np.allclose(back, plain, rtol=1e-12)


def test_a_constant_feature_is_centred_and_not_divided():
    scaling = Scaling.of(np.array([[0.1, 1.0]] * 3 + [[0.1, 5.0]]))
    assert scaling.deviation[0] == 1.0
    assert scaling.deviation[1] == pytest.approx(np.sqrt(3.0))


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_a_class_data_set_knows_its_classes_and_types(name):
    data = open_dataset(name)
    inputs, targets = data.tensors
    assert data.num_classes == data.num_outputs == len(data.class_names) == int(targets.max()) + 1
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)
    sample = data[0]
    assert sample[0].shape == data.in_shape
    assert sample[1].shape == ()


def test_a_regression_data_set_has_outputs_and_no_classes():
    data = open_dataset("diabetes")
    assert (data.task, data.num_classes, data.num_outputs) == ("regression", None, 1)
    assert data.feature_names[:2] == ("age", "sex")


def test_generated_data_are_what_the_generator_makes():
    data = raw("make-moons", n_samples=30, noise=0.1, seed=4)
    inputs, targets = datasets.make_moons(n_samples=30, noise=0.1, random_state=4)
    assert np.array_equal(data.tensors[0].numpy(), inputs)
    assert np.array_equal(data.tensors[1].numpy(), targets)


def test_generated_regression_may_have_several_outputs():
    data = open_dataset("make_regression", n_features=5, n_informative=3, n_targets=2)
    assert data.num_outputs == 2
    assert data.tensors[1].shape == (80, 2)


def test_data_do_not_touch_the_random_state_of_the_caller():
    before = randomness.capture()
    open_dataset("make_classification")
    open_dataset("digits")
    assert randomness.capture() == before


@pytest.mark.parametrize(
    ("target", "options", "what", "hint"),
    [
        ("mnist", {}, "no data set 'mnist'", "digits, breast_cancer"),
        ("digits", {"spilt": "test"}, "no option 'spilt'", "split"),
        ("digits", {"split": "valid"}, "'split' cannot be 'valid'", "train or test or all"),
        ("digits", {"flatten": 1}, "'flatten' cannot be 1", "True or False"),
        ("digits", {"dtype": "float16"}, "'dtype' cannot be 'float16'", "float32 or float64"),
        ("digits", {"test_fraction": 1.5}, "'test_fraction' cannot be 1.5", "between 0 and 1"),
        ("digits", {"seed": -1}, "'seed' cannot be -1", "from 0"),
        ("iris", {"test_fraction": 0.001}, "cannot be split", "test_size"),
        ("make_moons", {"n_sample": 3}, "no option 'n_sample'", "n_samples"),
        ("make_moons", {"random_state": 3}, "no option 'random_state'", "seed"),
        ("make_moons", {"n_samples": -3}, "refuses these options", "n_samples"),
        ("make_blobs", {"return_centers": True}, "no option 'return_centers'", "centers"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_try(target, options, what, hint):
    with pytest.raises(AdapterError) as caught:
        open_dataset(target, **options)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.seen


def test_the_adapter_is_registered_as_sklearn():
    (entry,) = metadata.entry_points(group="landscape_cli.data", name="sklearn")
    assert entry.load() is open_dataset
    assert isinstance(entry.load()("iris"), SklearnDataset)


@pytest.mark.parametrize("target", [*LOADERS, "make_blobs", "make_friedman1"])
def test_the_adapter_does_what_a_probe_relies_on(target):
    data = check_data_adapter(open_dataset, target, seed=3)
    assert isinstance(data, SklearnDataset)


def test_the_examples_run():
    failures, tried = doctest.testmod(adapter)
    assert (failures, tried) == (0, 2)
