"""A tiny BERT, from a configuration and with random weights, that learns whether a sentence has a certain token.

tuiapp run huggingface_tiny.py --set devices=2 -- --epochs 1
"""

import argparse
import os

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from tuiapp.integrations.huggingface import TuiappCallback

VOCABULARY, LENGTH, WANTED = 32, 16, 7


class Sentences(Dataset[dict[str, torch.Tensor]]):
    """Random tokens; the label says whether `WANTED` is among them."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(VOCABULARY, (count, LENGTH), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self.tokens[index]
        return {"input_ids": tokens, "labels": (tokens == WANTED).any().long()}


def main(output_dir: str, epochs: int) -> None:
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    cpu = not torch.cuda.is_available()
    args = TrainingArguments(
        output_dir, num_train_epochs=epochs, per_device_train_batch_size=32, learning_rate=1e-3, logging_steps=5,
        eval_strategy="epoch", use_cpu=cpu, report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        BertForSequenceClassification(config), args, train_dataset=Sentences(2000, 0), eval_dataset=Sentences(200, 1),
        callbacks=[TuiappCallback()],
    )  # fmt: skip
    # `tuiapp run --resume` and the key u set it.
    resumed = "TUIAPP_RESUME" in os.environ
    trainer.train(resume_from_checkpoint=get_last_checkpoint(output_dir) if resumed else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--output-dir", default="huggingface_tiny")
    parser.add_argument("--epochs", type=int, default=3)
    main(**vars(parser.parse_args()))
