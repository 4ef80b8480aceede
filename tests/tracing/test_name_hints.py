"""PyTorch's names that lazyt spells in another way: the error says how, and all else is as if it knew none of them."""

import copy
import pickle
import re

import numpy as np
import pytest

import lazyt as lt
from lazyt.tracing.name_hints import ATTRIBUTES


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_says_how_it_is_spelled_here(name):
    x = lt.zeros(2)
    for use in (lambda: getattr(x, name), lambda: setattr(x, name, 1)):
        with pytest.raises(AttributeError, match=f"no attribute '{name}': lazyt spells it"):
            use()
    assert not hasattr(x, name) and not hasattr(lt.Tensor, name)
    assert name not in dir(x) and name not in dir(lt.Tensor)
    assert getattr(x, name, 7) == 7


@pytest.mark.parametrize(("name", "here"), ATTRIBUTES.items())
def test_what_it_says_is_there(name, here):
    for path in re.findall(r"\blt((?:\.\w+)+)", here):
        found = lt
        for part in path[1:].split("."):
            found = getattr(found, part)
    for method in re.findall(r"\bx\.(\w+)", here):
        assert hasattr(lt.Tensor, method)


def test_no_protocol_meets_a_spelling():
    x = lt.arange(3.0)
    assert copy.deepcopy(x).tolist() == copy.copy(x).tolist() == pickle.loads(pickle.dumps(x)).tolist() == [0, 1, 2]
    assert np.asarray(x).tolist() == np.array([x, x])[1].tolist() == [0, 1, 2]
    assert np.median(np.asarray(lt.median(x))) == 1
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'anything'$"):
        x.anything  # noqa: B018 - the lookup is what is tested


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(dim=1),
        lambda x: x.argmax(dim=1),
        lambda x: lt.sum(x, dim=1),
        lambda x: lt.concat([x, x], dim=0),
        lambda x: lt.sort(x, dim=0),
        lambda x: lt.linalg.norm(x, dim=1),
    ],
)
def test_a_keyword_says_how_it_is_spelled_here(call):
    for _ in range(3):
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'dim': lazyt spells it axis= for dim="):
            call(lt.ones((2, 3)))


def test_a_mistake_without_another_spelling_is_python_s():
    x = lt.ones((2, 3))
    with pytest.raises(TypeError, match=r"keyword argument 'dim': lazyt spells it axis= for dim=, keepdims= for keepd"):
        x.mean(dim=1, keepdim=True)
    with pytest.raises(TypeError, match=r"^sum\(\) got an unexpected keyword argument 'whole'$"):
        x.sum(whole=True)
