"""Lightning with wrong labels: the lines that it takes are marked `added` and `changed`.

    pip install 'bspml[lightning]'
    python docs/examples/lightning_curriculum.py

Characters drawn from fonts, a third of their labels wrong; nothing is downloaded.
"""

import lightning.pytorch as pl
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss
from torch.utils.data import DataLoader, TensorDataset

import bspml  # in the place of your data
from bspml.data.sets.glyphs import Glyphs  # in the place of your data
from bspml.integrations.lightning import CurriculumCallback  # added
from bspml.networks import SmallConvNet  # in the place of your network


class Embedder(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.network, self.loss = SmallConvNet(), MultiSimilarityLoss()

    def forward(self, images):
        return self.network(images)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = self.loss(self(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


def main(classes=256, **options):
    glyphs = Glyphs("train")  # in the place of your data
    images, true_labels = glyphs.images[: 16 * classes], glyphs.labels[: 16 * classes]
    labels = bspml.noise.symmetric(true_labels, rate=0.3).labels  # in the place of your data
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)

    curriculum = CurriculumCallback(loader, warmup="cross-fit")  # added
    trainer = pl.Trainer(callbacks=[curriculum], **{"max_epochs": 12} | options)  # changed
    trainer.fit(Embedder(), loader)

    left_out = curriculum.weights.weights.cpu() == 0
    print(f"estimated {curriculum.record.noise_rate:.2f} wrong; {left_out.sum()} labels left out")
    print(f"{(labels != true_labels)[left_out].float().mean():.2f} of them are wrong")


if __name__ == "__main__":
    main()
