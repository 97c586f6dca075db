"""Lightning with wrong labels: the lines that it takes are marked `added` and `changed`.

    pip install 'bspml[lightning]'
    python docs/examples/lightning_curriculum.py

Characters drawn from fonts, a third of their labels wrong; nothing is downloaded.
"""

import lightning.pytorch as pl
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss
from torch.utils.data import DataLoader

import bspml  # added
from bspml.data.sets.glyphs import Glyphs  # in the place of your data
from bspml.integrations.lightning import CurriculumCallback  # added
from bspml.networks import SmallConvNet  # in the place of your network


class Embedder(pl.LightningModule):
    def __init__(self, loss):
        super().__init__()
        self.network, self.loss = SmallConvNet(), loss

    def forward(self, images):
        return self.network(images)

    def training_step(self, batch, batch_idx):
        loss = self.loss(self(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


def main(classes=256, **options):
    glyphs = Glyphs("train")  # in the place of your data
    images, true_labels = glyphs.images[: 16 * classes], glyphs.labels[: 16 * classes]
    labels = bspml.noise.symmetric(true_labels, rate=0.3).labels  # in the place of your data

    curriculum = bspml.SelfPacedCurriculum(bspml.SampleWeights(labels), warmup="cross-fit")  # added
    data = bspml.IndexedDataset(list(zip(images, labels.tolist(), strict=True)))  # changed
    loader = DataLoader(data, batch_sampler=bspml.PKSampler(labels, 16, 4))  # changed
    callback = CurriculumCallback(curriculum, loader)  # added

    model = Embedder(bspml.Weighted(MultiSimilarityLoss(), curriculum.weights))  # changed
    trainer = pl.Trainer(callbacks=[callback], **{"max_epochs": 12} | options)  # changed
    trainer.fit(model, loader)

    wrong = curriculum.weights.weights.cpu() < 0.5
    print(f"estimated {callback.record.noise_rate:.2f} wrong; left out {wrong.float().mean():.2f}")
    print(f"{(labels != true_labels)[wrong].float().mean():.2f} of them are wrong")


if __name__ == "__main__":
    main()
