"""Losses with learned vectors for the classes, against their formulas."""

import math

import pytest
import torch

from bspml import methods
from bspml.experiment.methods import MethodContext
from bspml.experiment.methods.proxies import SeededNormal
from helpers.method_formulas import CLASSES, ROWS, WIDTH, assert_same, batch, build, unit

EXACT = {"rtol": 0, "atol": 1e-12}


def test_proxy_anchor_is_the_log_sums_over_the_batch_of_each_proxy():
    emb, labels = batch()
    labels = labels.clamp(max=2)  # class 3 is not in the batch
    loss = build("proxy-anchor").loss.double()
    s = unit(emb) @ unit(loss.proxies).T
    positive = [
        torch.log1p(sum(torch.exp(-32 * (s[i, c] - 0.1)) for i in range(ROWS) if labels[i] == c))
        for c in range(3)
    ]
    negative = [
        torch.log1p(sum(torch.exp(32 * (s[i, c] + 0.1)) for i in range(ROWS) if labels[i] != c))
        for c in range(CLASSES)
    ]
    expected = torch.stack(positive).mean() + torch.stack(negative).mean()
    assert_same(loss(emb, labels), expected, emb)


def test_proxies_are_normal_and_a_function_of_the_seed():
    proxies = torch.empty(2000, 50)
    SeededNormal(1)(proxies)
    scale = math.sqrt(2 / 2000)
    assert float(proxies.mean()) == pytest.approx(0, abs=3 * scale / math.sqrt(1e5))
    assert float(proxies.std()) == pytest.approx(scale, rel=0.01)
    kurtosis = float((proxies / scale).pow(4).mean())
    assert kurtosis == pytest.approx(3, abs=0.1)
    built = [
        methods.build("proxy-anchor", MethodContext(CLASSES, WIDTH, seed=seed)).loss.proxies
        for seed in (0, 0, 1)
    ]
    assert torch.equal(built[0], built[1])
    assert not torch.equal(built[0], built[2])


def test_arcface_is_a_softmax_with_a_margin_on_the_own_angle():
    emb, labels = batch()
    loss = build("arcface", margin=10.0, scale=8.0).loss.double()
    cosines = unit(emb) @ unit(loss.W.T).T
    values = []
    for i in range(ROWS):
        logits = 8 * cosines[i]
        own = int(labels[i])
        logits[own] = 8 * torch.cos(torch.acos(cosines[i, own]) + math.radians(10))
        values.append(torch.logsumexp(logits, 0) - logits[own])
    assert_same(loss(emb, labels), sum(values) / ROWS, emb)


def test_arcface_s_classes_learn_at_their_own_rate():
    parts = methods.build("arcface", MethodContext(CLASSES, WIDTH, hyper={"class_lr_factor": 10.0}))
    assert (parts.loss_has_parameters, parts.loss_lr_factor) == (True, 10)
