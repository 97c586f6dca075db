"""Train embeddings with the Trainer of transformers, some labels wrong: three lines are ours."""

import torch
from datasets import Dataset
from pytorch_metric_learning.losses import MultiSimilarityLoss
from transformers import Trainer, TrainingArguments

from bspml.integrations.huggingface import CurriculumCallback  # added


class Embedder(torch.nn.Module):
    """Any model will do that returns (B, D) embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 8)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(self.layers(features))


metric_loss = MultiSimilarityLoss()


def compute_loss(embeddings, labels, num_items_in_batch=None):
    return metric_loss(embeddings, labels)


generator = torch.Generator().manual_seed(0)
labels = torch.arange(8).repeat_interleave(20)
features = torch.randn(8, 16, generator=generator)[labels]
features += 0.3 * torch.randn(features.shape, generator=generator)
wrong = torch.arange(0, len(labels), 8)
labels[wrong] = (labels[wrong] + torch.randint(1, 8, wrong.shape, generator=generator)) % 8

torch.manual_seed(0)
trainer = Trainer(
    model=Embedder(),
    args=TrainingArguments(
        output_dir="embedder",
        num_train_epochs=2,
        per_device_train_batch_size=16,
        remove_unused_columns=False,
        report_to="none",
    ),
    train_dataset=Dataset.from_dict({"features": features, "labels": labels}),
    compute_loss_func=compute_loss,
)
curriculum = CurriculumCallback(trainer)  # added
trainer.add_callback(curriculum)  # added
trainer.train()

left_out = (curriculum.weights.weights == 0).nonzero()[:, 0]
found = len(set(left_out.tolist()) & set(wrong.tolist()))
print(f"{len(left_out)} labels left out, {found} of the {len(wrong)} wrong ones among them")
