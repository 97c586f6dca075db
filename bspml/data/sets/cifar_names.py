"""The classes of CIFAR-10 and CIFAR-100, in the order of their labels, and who resembles whom."""

from __future__ import annotations

import numpy as np

CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)

# The five confusions of CIFAR-10's asymmetric noise [Patrini 2017]: truck -> automobile,
# bird -> airplane, deer -> horse, cat <-> dog.  For `bspml.noise.asymmetric(mapping=...)`.
CIFAR10_CONFUSIONS = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}

# CIFAR-100's superclasses and their five classes each.  Both lists of labels are alphabetical.
_CIFAR100 = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
_SUPERCLASS_NAME = {name: group for group, names in _CIFAR100.items() for name in names}

CIFAR100_CLASSES = tuple(sorted(_SUPERCLASS_NAME))
CIFAR100_SUPERCLASSES = tuple(sorted(_CIFAR100))
# (100,) int64, the superclass of each class, as positions; read-only.
CIFAR100_SUPERCLASS_OF = np.array(
    [CIFAR100_SUPERCLASSES.index(_SUPERCLASS_NAME[name]) for name in CIFAR100_CLASSES],
    dtype=np.int64,
)
CIFAR100_SUPERCLASS_OF.flags.writeable = False
