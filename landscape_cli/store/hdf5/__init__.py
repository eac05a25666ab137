"""Reads the part of HDF5 that runs are written in, without the HDF5 library.

The library trusts what it reads: a crafted file makes it loop for ever or write beyond its
memory. Runs need little of the format: groups, attributes, arrays that lie in one piece, texts
and references. Here every offset and size is checked against the file, and whatever else HDF5
can hold (links to other files, virtual and external data, plugins, tables) is refused. A layout
that landscape never writes is a `ForeignLayoutError`: the library may read it, in a process apart.

Reference:
    The HDF Group, HDF5 File Format Specification Version 3.0.
"""

from landscape_cli.store.hdf5.objects import Dataset, read_tree
from landscape_cli.store.hdf5.source import ForeignLayoutError, Source

__all__ = ["Dataset", "ForeignLayoutError", "Source", "read_tree"]
