"""Classifiers and regressors trained on labels that may be wrong, where SuperLoss and GR report.

`run_experiment` is the counterpart of `bspml.experiment.run.run_experiment`, with the same folder,
records, checkpoints and resume.
"""
