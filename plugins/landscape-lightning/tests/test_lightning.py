"""The adapters on a module and data that Lightning itself trained and saved."""

import argparse
import pickle
import warnings
from importlib import metadata
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what Lightning's own imports deprecate is not tested here
    L = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

from landscape_lightning import build_model, open_data
from landscape_lightning.hyperparameters import read

from landscape_cli import batches, losses
from landscape_cli.adapters.building import build_data
from landscape_cli.adapters.building import build_model as build_from_spec
from landscape_cli.adapters.conformance import check_data_adapter, check_model_adapter
from landscape_cli.batches import Batch
from landscape_cli.errors import AdapterError

SOURCE = """
import lightning.pytorch as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self, width, classes=3, folder=None, args=None):
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, classes)
        )

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y, label_smoothing=0.1)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch):
        return {"loss": self.training_step(batch, 0) * 2}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Manual(Net):
    def training_step(self, batch, batch_idx):
        return None


class Bundled(L.LightningModule):
    def __init__(self, conf):
        super().__init__()
        self.save_hyperparameters(conf)
        self.layer = torch.nn.Linear(conf.width, 2)


class Data(L.LightningDataModule):
    def __init__(self, batch_size=8, count=20):
        super().__init__()
        self.save_hyperparameters()
        self.prepared = False

    def prepare_data(self):
        raise RuntimeError("prepare_data downloads")

    def setup(self, stage):
        generator = torch.Generator().manual_seed({"fit": 0, "test": 1}[stage])
        count = self.hparams.count
        self.data = TensorDataset(
            torch.randn(count, 4, generator=generator), torch.arange(count) % 3
        )

    def train_dataloader(self):
        return DataLoader(self.data, self.hparams.batch_size, shuffle=True)

    def val_dataloader(self):
        return [DataLoader(self.data, self.hparams.batch_size)]

    def test_dataloader(self):
        return [DataLoader(self.data), DataLoader(self.data)]


def factory():
    return Net(4)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "code.py"
    path.write_text(SOURCE)
    return str(path)


def batch(count=6):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(count, 4, generator=generator), torch.arange(count) % 3


def train(file, root, **options):
    """Let Lightning train a module for one step and save a checkpoint."""
    module = build_model(f"{file}:Net", **options)
    trainer = L.Trainer(
        max_steps=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=root,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few workers, few batches
        trainer.fit(module, train_dataloaders=open_data(f"{file}:Data", loader="train"))
    path = Path(root) / "last.ckpt"
    trainer.save_checkpoint(path)
    return module, str(path)


def test_the_adapters_conform(file):
    check_model_adapter(build_model, f"{file}:Net", batch(), width=5)
    check_data_adapter(open_data, f"{file}:Data", loader="val")


def test_a_spec_with_a_file_reaches_the_adapter(file):
    assert build_from_spec(f"lightning:{file}:Net?width=7").layers[0].out_features == 7
    assert build_data(f"lightning:{file}:Data?batch_size=4").batch_size == 4


def test_a_class_of_an_installed_package_is_imported():
    model = build_model("torch.nn:Linear", in_features=3, out_features=2)
    assert model.out_features == 2


def test_recorded_hyperparameters_make_the_module_that_was_trained(file, tmp_path):
    trained, path = train(
        file, tmp_path, width=6, folder=Path("some/where"), args=argparse.Namespace(depth=3)
    )
    model = build_model(f"{file}:Net", checkpoint=path)
    assert model.layers[0].out_features == 6
    assert model.hparams.folder == Path("some/where")
    assert model.hparams.args.depth == 3
    model.load_state_dict(trained.state_dict())
    assert build_model(f"{file}:Net", checkpoint=path, classes=5).layers[2].out_features == 5


def test_hyperparameters_of_the_data_module_are_found_in_the_same_checkpoint(file, tmp_path):
    path = tmp_path / "data.ckpt"
    content = {"datamodule_hyper_parameters": {"batch_size": 5, "count": 10, "other": 1}}
    torch.save(content, path)
    assert open_data(f"{file}:Data", checkpoint=str(path)).batch_size == 5
    assert open_data(f"{file}:Data", checkpoint=str(path), batch_size=2).batch_size == 2


def test_hyperparameters_given_as_one_argument_are_given_as_one_again(file, tmp_path):
    path = tmp_path / "bundled.ckpt"
    torch.save({"hyper_parameters": {"width": 9}, "hparams_name": "conf"}, path)
    assert build_model(f"{file}:Bundled", checkpoint=str(path)).layer.in_features == 9
    changed = build_model(f"{file}:Bundled", checkpoint=str(path), width=3)
    assert changed.layer.in_features == 3


class Evil:
    """Would write a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("legacy", [False, True])
def test_nothing_in_a_checkpoint_runs_and_what_it_would_make_is_left_out(tmp_path, legacy):
    path, mark = tmp_path / "evil.ckpt", tmp_path / "ran"
    content = {"hyper_parameters": {"width": 4, "evil": Evil(mark), "list": [1, Evil(mark)]}}
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    assert read(str(path)) == ({"width": 4}, "")
    assert not mark.exists()


def test_plain_values_and_tensors_come_back_as_they_were(tmp_path):
    values = {
        "texts": ("a", ["b"]),
        "table": {"x": 1.5, "y": None},
        "tensor": torch.arange(3),
        "path": Path("a/b"),
    }
    path = tmp_path / "plain.ckpt"
    torch.save({"hyper_parameters": values}, path)
    found, _ = read(str(path))
    assert torch.equal(found.pop("tensor"), values.pop("tensor"))
    assert found == values


def test_the_loss_of_a_step_is_that_of_the_module_trained_by_lightning(file):
    torch.manual_seed(0)
    model = build_model(f"{file}:Net", width=5, objective="training_step")
    x, y = batch()
    found = Batch.split((x, y), model, whole=True)
    loss = losses.resolve("model", model)
    with torch.no_grad():
        total = loss.total(model(*found.inputs, **found.keywords), found)
        wanted = F.cross_entropy(model.layers(x), y, label_smoothing=0.1)
    assert float(total) == pytest.approx(6 * float(wanted), rel=1e-6)


def test_a_step_may_take_the_batch_alone_and_return_a_mapping(file):
    model = build_model(f"{file}:Net", width=5, objective="validation_step")
    once = build_model(f"{file}:Net", width=5, objective="training_step")
    once.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert float(model(*batch())) == pytest.approx(2 * float(once(*batch())))
    assert list(model.state_dict()) == list(once.state_dict())


def test_batches_are_those_of_the_loader_and_repeat_with_the_seed(file):
    data = open_data(f"{file}:Data", batch_size=4)
    first, again, other = (batches.draw(data, 99, 2, seed=seed) for seed in (1, 1, 2))
    assert [len(y) for _, y in first.batches] == [4, 4]
    assert first.content_hash() == again.content_hash()
    assert first.content_hash() != other.content_hash()


@pytest.mark.parametrize(
    ("target", "options", "what", "hint"),
    [
        ("{file}:Nett", {}, "has no function 'Nett'", "Net"),
        ("{file}:factory", {}, "factory is not a class", "without lightning:"),
        ("{file}:Data", {}, "not a LightningModule", "--data"),
        ("{file}:Net", {}, "does not take these options", "width"),
        ("{file}:Net", {"width": 4, "wdth": 3}, "does not take these options", "width"),
        ("{file}:Net", {"width": -4}, "raised an error while it was made", "width=-4"),
        ("{file}:Net", {"width": 4, "objective": "x"}, "'objective' cannot be", "training_step"),
        ("torch.nn:ReLU", {"objective": "test_step"}, "has no test_step", "forward"),
        ("{file}:Net", {"checkpoint": "/nowhere.ckpt"}, "cannot be read", "FILE.ckpt"),
        ("Net", {}, "names no file and class", "FILE.py:CLASS"),
        ("no.such.module:Net", {}, "cannot be imported", "package.module"),
        ("torch.nn:Lineal", {}, "cannot be imported", "package.module"),
    ],
)
def test_a_model_that_cannot_be_meant_is_refused_with_what_to_try(
    file, target, options, what, hint
):
    with pytest.raises(AdapterError) as caught:
        build_model(target.format(file=file), **options)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.seen


@pytest.mark.parametrize(
    ("target", "options", "what", "hint"),
    [
        ("{file}:Net", {}, "not a LightningDataModule", "loader="),
        ("{file}:Data", {"loader": "valid"}, "'loader' cannot be", "val"),
        ("{file}:Data", {"prepare": 1}, "'prepare' cannot be", "True"),
        ("{file}:Data", {"prepare": True}, "prepare_data raised an error", "--debug"),
        ("{file}:Data", {"count": "x"}, "setup raised an error", "prepare=True"),
        ("{file}:Data", {"loader": "test"}, "did not return one loader", "FILE.py:FACTORY"),
    ],
)
def test_data_that_cannot_be_meant_are_refused_with_what_to_try(file, target, options, what, hint):
    with pytest.raises(AdapterError) as caught:
        open_data(target.format(file=file), **options)
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_a_step_without_a_loss_is_refused(file):
    model = build_model(f"{file}:Manual", width=3, objective="training_step")
    with pytest.raises(AdapterError, match="returned no loss"):
        model(*batch())


def test_a_checkpoint_without_hyperparameters_is_refused(file, tmp_path):
    path = tmp_path / "none.ckpt"
    path.write_bytes(pickle.dumps({"state_dict": {}}))
    with pytest.raises(AdapterError, match="recorded no hyper-parameters"):
        build_model(f"{file}:Net", checkpoint=str(path))


def test_the_adapters_are_registered_as_lightning():
    (model,) = metadata.entry_points(group="landscape_cli.models", name="lightning")
    (data,) = metadata.entry_points(group="landscape_cli.data", name="lightning")
    assert (model.load(), data.load()) == (build_model, open_data)
