"""Fine-tune sentence-transformers on texts some of whose labels are wrong: three lines are ours."""

import itertools

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import BatchAllTripletLoss

from bspml.integrations.sentence_transformers import CurriculumCallback  # added

things = {
    "animals": ["horse", "dolphin", "sparrow", "rabbit"],
    "finance": ["mortgage", "share price", "bank loan", "interest rate"],
    "kitchen": ["frying pan", "soup recipe", "oven", "bread dough"],
    "sports": ["goalkeeper", "marathon", "tennis match", "penalty kick"],
}
sentences = ["I read about the {}.", "What is a good {}?", "The {} was a surprise."]
names = list(things)
rows = [
    {"sentence": sentence.format(thing), "label": names.index(topic)}
    for topic in names
    for thing, sentence in itertools.product(things[topic], sentences)
]
wrong = range(0, len(rows), 8)
for i in wrong:
    rows[i]["label"] = (rows[i]["label"] + 1) % len(names)

model = SentenceTransformer("sentence-transformers/all-MiniLM-L6-v2")
trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(
        output_dir="topics", num_train_epochs=2, per_device_train_batch_size=16, report_to="none"
    ),
    train_dataset=Dataset.from_list(rows),
    loss=BatchAllTripletLoss(model),
)
curriculum = CurriculumCallback(trainer)  # added
trainer.add_callback(curriculum)  # added
trainer.train()

left_out = [i for i, weight in enumerate(curriculum.weights.weights) if weight == 0]
print(f"{curriculum.records[0].held[0]:.0%} of the labels are wrong; left out:")
for i in left_out:
    print(f"    {names[rows[i]['label']]}? {rows[i]['sentence']}")
