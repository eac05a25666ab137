"""The callbacks inside the frameworks themselves, and their errors without them."""

import importlib
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from landscape_cli.record import read_history

FRAMEWORK_WARNINGS = "ignore"


def metadata(path):
    with safe_open(path, "pt") as file:
        return file.metadata()


def names(folder):
    return sorted(path.name for path in folder.glob("step-*"))


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(24, 3, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True))


@pytest.fixture
def fit(tmp_path):
    """Run Lightning's Trainer with the callback and return the module."""
    pytest.importorskip("lightning.pytorch")
    import lightning.pytorch as lightning

    class Regression(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(3, 1)

        def training_step(self, batch, _):
            x, y = batch
            return nn.functional.mse_loss(self.net(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def run(callback, **options):
        module = Regression()
        trainer = lightning.Trainer(
            callbacks=[callback],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
            **options,
        )
        trainer.fit(module, DataLoader(data(), batch_size=4))
        return module

    return run


@pytest.mark.filterwarnings(FRAMEWORK_WARNINGS)
def test_lightning_training_leaves_a_trajectory(tmp_path, fit):
    from landscape_cli.record.lightning import LightningCallback

    folder = tmp_path / "run"
    module = fit(LightningCallback(folder, every=3), max_epochs=2)
    assert names(folder) == [f"step-{step:06d}.safetensors" for step in (0, 3, 6, 9, 12)]
    found = load_file(folder / "step-000012.safetensors")
    assert torch.equal(found["net.weight"], module.net.weight)
    assert metadata(folder / "step-000012.safetensors")["learning_rate"] == "0.1"
    history = read_history(folder)
    assert history["step"].tolist() == list(range(13))
    assert history["loss"][-1] < history["loss"][1]


@pytest.mark.filterwarnings(FRAMEWORK_WARNINGS)
def test_lightning_batches_that_accumulate_are_no_steps(tmp_path, fit):
    from landscape_cli.record.lightning import LightningCallback

    folder = tmp_path / "run"
    fit(LightningCallback(folder, every=1), max_epochs=1, accumulate_grad_batches=3)
    assert names(folder) == [f"step-{step:06d}.safetensors" for step in (0, 1, 2)]


@pytest.mark.filterwarnings(FRAMEWORK_WARNINGS)
def test_lightning_may_record_a_part_by_its_own_names(tmp_path, fit):
    from landscape_cli.record.lightning import LightningCallback

    folder = tmp_path / "run"
    fit(LightningCallback(folder, submodule="net", at=(2,)), max_epochs=1)
    assert sorted(load_file(folder / "step-000002.safetensors")) == ["bias", "weight"]


@pytest.mark.filterwarnings(FRAMEWORK_WARNINGS)
def test_lightning_history_is_kept_when_training_fails(tmp_path, fit):
    import lightning.pytorch as lightning

    from landscape_cli.record.lightning import LightningCallback

    class Failing(LightningCallback):
        def on_train_batch_end(self, trainer, *rest):
            super().on_train_batch_end(trainer, *rest)
            if trainer.global_step == 2:
                raise ZeroDivisionError

    assert issubclass(Failing, lightning.Callback)
    with pytest.raises(ZeroDivisionError):
        fit(Failing(tmp_path / "run", at=(100,)), max_epochs=1)
    assert read_history(tmp_path / "run")["step"].tolist() == [0, 1, 2]


@pytest.mark.filterwarnings(FRAMEWORK_WARNINGS)
def test_a_transformers_trainer_leaves_a_trajectory(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from landscape_cli.record.transformers import TransformersCallback

    config = transformers.GPT2Config(
        vocab_size=11, n_positions=8, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0.0
    )
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(0, 11, (24, 8))
    samples = [{"input_ids": row, "labels": row} for row in tokens]
    folder = tmp_path / "run"
    arguments = transformers.TrainingArguments(
        output_dir=tmp_path / "trainer",
        max_steps=6,
        per_device_train_batch_size=4,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    transformers.Trainer(
        model,
        arguments,
        train_dataset=samples,
        callbacks=[TransformersCallback(folder, every=3)],
    ).train()
    assert names(folder) == [f"step-{step:06d}.safetensors" for step in (0, 3, 6)]
    last = folder / "step-000006.safetensors"
    assert metadata(last)["learning_rate"] == "0.01"
    assert "lm_head.weight" in metadata(last)["tied"] or "wte" in metadata(last)["tied"]
    found = load_file(last)
    state = model.state_dict()
    assert all(torch.equal(found[name], state[name]) for name in found)
    history = read_history(folder)
    assert history["step"].tolist() == list(range(7))
    logged = [
        step for step, loss in zip(history["step"], history["loss"], strict=True) if loss == loss
    ]
    assert logged == [2, 4, 6]


@pytest.mark.parametrize(
    ("module", "blocked", "hint"),
    [
        ("lightning", ("lightning", "pytorch_lightning"), "pip install lightning"),
        ("transformers", ("transformers",), "pip install transformers"),
    ],
)
def test_without_the_framework_the_error_says_what_to_install(module, blocked, hint):
    program = (
        "import sys\n"
        f"for name in {blocked!r}: sys.modules[name] = None\n"
        "from landscape_cli.errors import SpecError\n"
        "try:\n"
        f"    import landscape_cli.record.{module}\n"
        "except SpecError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "is not installed" in done.stdout
    assert hint in done.stdout


def test_the_recorder_needs_no_framework():
    module = importlib.import_module("landscape_cli.record")
    assert module.Recorder is importlib.import_module("landscape_cli").Recorder
