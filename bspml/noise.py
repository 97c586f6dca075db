"""Wrong labels made on purpose, with a record of which are wrong.

Every function takes labels of any kind and returns `NoisyLabels` of the same kind: strings stay
strings, dtypes are kept, tensors stay tensors.  Three rules hold throughout:

- *Counts are exact*, unless `exact=False`.  A rate names a number of samples, not a probability
  per sample: rate * n is rounded to the nearest whole number, halves to the even one (Python's
  `round`).  The rate is read as the decimal it prints as, so 0.1 and float32's 0.1 mean a tenth
  and 0.29 * 50 is 14.5.  With `exact=False` each sample is drawn with probability `rate`,
  independently, as several papers word it; the total then varies with the seed.
- *A wrong label is wrong*: never the sample's own, always one that occurs in `labels`.  With
  `keep_original=True` a drawn sample may get its own label back; then it is not wrong.
- *The same seed gives the same flags*, whatever the global generators, workers or device are.

`is_noisy` is the record.  It is not `labels != true_labels` recomputed by whoever reads it.

Which protocol is whose:

| paper | call |
|---|---|
| [Zhang 2023] | `symmetric(y, r, per_class=True)` |
| [Wang GR 2019] 4.2, [Wang IMAE 2019] 5.1 (1) | `symmetric(y, r, exact=False)` |
| [Castells 2020], table 3 | `symmetric(y, r)` |
| [Castells 2020], table 4: originals can be maintained | `symmetric(y, r, keep_original=True)` |
| [Patrini 2017], CIFAR-10 | `asymmetric(y, r, CIFAR10_CONFUSIONS)`, in `data.sets.cifar` |
| [Patrini 2017], CIFAR-100 | `sibling_flip(y, r, groups, to="next")` |
| [Wang GR 2019] appendix D | `sibling_flip(y, r, groups, exact=False)` |
| [Wang IMAE 2019] 5.1 (2) | `sibling_swap(y, r, groups, exact=False)` |
| [Han 2018] | `pair_flip(y, r)` |
| [Barbany 2024], in kind | `semantic(y, r)` |

Example:
    >>> noisy = symmetric(["cat", "cat", "dog", "dog"], rate=0.5)
    >>> noisy.is_noisy.sum().item(), (noisy.labels != noisy.true_labels).sum().item()
    (2, 2)
"""

from bspml.data.noise import *  # noqa: F403
from bspml.data.noise import __all__ as __all__
