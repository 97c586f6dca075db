"""Small texts, models and trainings with Hugging Face's trainers."""

import numpy as np
import pytest
import torch

CLASSES, PER_CLASS, WORDS = 6, 12, 8


def texts_and_labels(noise=0.2, seed=0):
    """Texts of words of their class, some of them under another class's label; the truth, too."""
    rng = np.random.default_rng(seed)
    true = np.repeat(np.arange(CLASSES), PER_CLASS)
    texts = [" ".join(f"word{c}x{k}" for k in rng.choice(WORDS, 3, replace=False)) for c in true]
    wrong = rng.random(len(true)) < noise
    shifted = (true + rng.integers(1, CLASSES, len(true))) % CLASSES
    return texts, np.where(wrong, shifted, true), true


def vocabulary():
    words = [f"word{c}x{k}" for c in range(CLASSES) for k in range(WORDS)]
    return {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}


def static_model():
    """One vector per word, drawn at random: words of a class share texts, which is enough."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(0)
    tokenizer = Tokenizer(models.WordLevel(vocabulary(), "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)])


def bert_model(folder):
    """A transformer with dropout, so that a resumed training must find its generators."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(0)
    if not folder.exists():
        config = BertConfig(
            vocab_size=len(vocabulary()), hidden_size=16, num_hidden_layers=1,
            num_attention_heads=2, intermediate_size=16, max_position_embeddings=16,
        )  # fmt: skip
        BertModel(config).save_pretrained(folder)
        BertTokenizerFast(vocab=vocabulary()).save_pretrained(folder)
    transformer = Transformer(str(folder))
    return SentenceTransformer(
        modules=[transformer, Pooling(transformer.get_embedding_dimension())]
    )


def same_states(first, second):
    """Whether two modules hold the same numbers, bit for bit."""
    own, other = first.state_dict(), second.state_dict()
    return own.keys() == other.keys() and all(torch.equal(own[k], other[k]) for k in own)


def killed_at(trainer, step):
    """Stop the trainer's training as a kill would, after a step and its checkpoint."""
    from transformers import TrainerCallback

    class Killer(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == step:
                raise KeyboardInterrupt

        on_epoch_end = on_step_begin

    trainer.callback_handler.callbacks.insert(0, Killer())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()


def of_log(trainer):
    """What the trainer's log has about the weights, and when."""
    names = ("step", "maw", "sdaw", "noise_rate")
    return [{name: entry.get(name) for name in names} for entry in trainer.state.log_history]
