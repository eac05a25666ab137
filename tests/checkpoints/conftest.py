from __future__ import annotations

from pathlib import Path

import pytest
from saved_checkpoints import WRITERS, Net, make_net


@pytest.fixture
def net() -> Net:
    return make_net()


@pytest.fixture(params=list(WRITERS))
def written(request, net, tmp_path) -> Path:
    """The checkpoint of `net` in every format."""
    return WRITERS[request.param](net, tmp_path)
