"""Random numbers of Python's and NumPy's."""

from __future__ import annotations

import random

import numpy as np

from lazyt import nn
from tests.support.jit_programs.table import calls, one, program


@program
def _random_random(jit):
    return calls(jit, lambda x: x * random.random())


@program
def _random_instance(jit):
    rng = random.Random(7)
    return calls(jit, lambda x: x * rng.random())


@program
def _random_in_an_attribute(jit):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rng = random.Random(7)

        def forward(self, x):
            return x * 2 if self.rng.random() > 0.5 else x * 3

    return calls(jit, Model())


@program
def _random_subclass(jit):
    class Mine(random.Random):
        pass

    rng = Mine(7)
    return calls(jit, lambda x: x * rng.random())


@program
def _random_bound(jit):
    draw = random.Random(7).uniform
    return calls(jit, lambda x: x * draw(0, 1))


@program
def _random_randint(jit):
    return calls(jit, lambda x: x[random.randint(0, 1)] + random.choice([1, 2, 3]))


@program
def _random_shuffle(jit):
    order = [0, 1, 2, 3]

    def f(x):
        random.shuffle(order)
        return x * order[0]

    return calls(jit, f)


@program
def _random_imported_inside(jit):
    def f(x):
        from random import random as draw

        return x * draw()

    return calls(jit, f)


@program
def _numpy_random(jit):
    return calls(jit, lambda x: x * np.random.rand())


@program
def _numpy_random_array(jit):
    return calls(jit, lambda x: x + np.random.standard_normal(2).astype(np.float32))


@program
def _numpy_generator(jit):
    rng = np.random.default_rng(7)
    return calls(jit, lambda x: x * rng.random())


@program
def _numpy_generator_array(jit):
    rng = np.random.default_rng(7)
    return calls(jit, lambda x: x + rng.random(2).astype(np.float32))


@program
def _numpy_random_state(jit):
    rng = np.random.RandomState(7)
    return calls(jit, lambda x: x * rng.rand())


@program
def _numpy_generator_of_an_object(jit):
    class Model:
        def __init__(self):
            self.rng = np.random.default_rng(7)

        def noise(self):
            return float(self.rng.normal())

        def __call__(self, x):
            return x * self.noise()

    return calls(jit, Model())


@program
def _numpy_generator_as_argument(jit):
    rng = np.random.default_rng(7)
    f = jit(lambda x, rng: x * rng.random())
    return lambda turn: f(one(), rng)


@program
def _numpy_random_by_another_name(jit):
    draw = np.random.uniform
    return calls(jit, lambda x: x * draw())


@program
def _numpy_module_by_another_name(jit):
    def f(x):
        module = np
        return x * module.random.rand()

    return calls(jit, f)


@program
def _numpy_permutation(jit):
    rng = np.random.default_rng(7)
    return calls(jit, lambda x: x[int(rng.permutation(2)[0])])


@program
def _random_state_is_set(jit):
    f = jit(lambda x: (random.seed(5), x * 2)[1])

    def call(turn):
        f(one())
        return random.random()

    return call
