"""WebDataset shards for landscape: ``--data webdataset:FOLDER``."""

from landscape_webdataset.adapter import open_shards
from landscape_webdataset.dataset import ShardSamples

__all__ = ["ShardSamples", "open_shards"]
