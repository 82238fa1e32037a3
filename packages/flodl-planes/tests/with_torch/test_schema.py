"""A module's tensors in the live buffer: which there are, and that they stay there whatever a script does to them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.segment import Segment
from flodl_planes.rank.schema import Adopted, signature, slots_of
from flodl_wire.faults import Refused

CPU = torch.device("cpu")


class Adoption:
    """A module adopted into a segment of its own, and that segment read as the hub would read it."""

    def __init__(self, model: nn.Module, staged: bool = False) -> None:
        self.slots = slots_of(model)
        self.specs = [slot.spec for slot in self.slots]
        layout = lay_out(self.specs)
        self.live = Segment.create("live", layout.total_bytes)
        self.offsets = dict(zip((spec.name for spec in self.specs), layout.offsets, strict=True))
        self.adopted = Adopted(self.slots, layout.offsets, self.live.buffer, CPU, staged=staged)

    def read(self, name: str) -> torch.Tensor:
        slot = next(slot for slot in self.slots if slot.name == name)
        start, size = self.offsets[name], slot.tensor.numel() * slot.tensor.element_size()
        raw = torch.from_numpy(self.live.array[start : start + size].copy())
        return raw.view(slot.tensor.dtype).view(slot.tensor.shape)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def test_parameters_come_first_then_persistent_buffers_each_with_its_words() -> None:
    model = net()
    model.register_buffer("passing", torch.zeros(3), persistent=False)
    found = [(spec.name, spec.shape, spec.dtype, spec.kind) for spec in Adoption(model).specs]
    assert found[:2] == [("0.weight", [6, 4], "F32", "param"), ("0.bias", [6], "F32", "param")]
    assert found[-2:] == [("1.running_var", [6], "F32", "buffer"), ("1.num_batches_tracked", [], "I64", "buffer")]
    assert {name for name, *_ in found} == set(model.state_dict())


def test_the_buffer_is_the_model_in_both_directions() -> None:
    model = net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    adoption = Adoption(model)
    for name, tensor in before.items():
        assert torch.equal(adoption.read(name), tensor)
    adoption.live.array[:] = 0  # an average arrives
    assert all(not tensor.any() for tensor in model.state_dict().values())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.block = nn.Linear(3, 3)
        self.again = self.block  # a module under two names

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.again(self.block(self.embedding(text))))


def test_tied_weights_and_shared_modules_lie_there_once_under_all_their_names() -> None:
    model = Tied()
    adoption = Adoption(model)
    names = {spec.name: spec.ties for spec in adoption.specs}
    assert names == {
        "embedding.weight": ["head.weight"],
        "block.weight": ["again.weight"],
        "block.bias": ["again.bias"],
    }
    assert model.head.weight is model.embedding.weight
    adoption.adopted.settle()


def test_two_parameters_on_one_storage_stay_on_one() -> None:
    model = Tied()
    model.head.weight = nn.Parameter(model.embedding.weight.data)  # tied by storage only
    Adoption(model)
    with torch.no_grad():
        model.embedding.weight.fill_(7)
    assert bool((model.head.weight == 7).all())


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int = 3) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_optimizers_write_into_the_buffer(kind: type[torch.optim.Optimizer]) -> None:
    model = net()
    optimizer = kind(model.parameters(), lr=0.01)
    steps(model, optimizer)  # state from before, too
    adoption = Adoption(model)
    steps(model, optimizer)
    for name, tensor in model.state_dict().items():
        assert torch.equal(adoption.read(name), tensor)


def load_assigning(model: nn.Module) -> None:
    model.load_state_dict({name: torch.ones_like(tensor) for name, tensor in model.state_dict().items()}, assign=True)


def load_copying(model: nn.Module) -> None:
    model.load_state_dict({name: torch.ones_like(tensor) for name, tensor in model.state_dict().items()})


def rebind_data(model: nn.Module) -> None:
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data = torch.ones_like(tensor)


def replace_parameter(model: nn.Module) -> None:
    load_copying(model)
    model[0].weight = nn.Parameter(torch.ones(6, 4))


@pytest.mark.parametrize("change", [load_assigning, load_copying, rebind_data, replace_parameter])
def test_what_a_script_binds_anew_is_taken_in_again_before_the_deposit(change: Callable[[nn.Module], None]) -> None:
    model = net()
    adoption = Adoption(model)
    change(model)
    adoption.adopted.settle()
    for name in model.state_dict():
        assert bool((adoption.read(name) == 1).all()), name
    adoption.live.array[:] = 0
    assert all(not tensor.any() for tensor in model.state_dict().values())


def test_channels_last_is_taken_in_again_with_the_values_in_order() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    weight = model[0].weight.detach().clone()
    adoption = Adoption(model)
    model.to(memory_format=torch.channels_last)
    adoption.adopted.settle()
    assert torch.equal(adoption.read("0.weight"), weight)
    assert torch.equal(model[0].weight, weight)


def test_lstm_parametrizations_and_frozen_parts_are_adopted_as_they_are() -> None:
    model = nn.ModuleDict({"lstm": nn.LSTM(4, 4), "normed": parametrizations.weight_norm(nn.Linear(4, 4))})
    model["lstm"].requires_grad_(False)
    adoption = Adoption(model)
    out, _ = model["lstm"](torch.randn(2, 1, 4))
    F.mse_loss(model["normed"](out), torch.zeros(2, 1, 4)).backward()
    adoption.adopted.settle()
    assert {spec.name for spec in adoption.specs} == set(model.state_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_float_dtypes_are_views_too(dtype: torch.dtype) -> None:
    model = net().to(dtype)
    adoption = Adoption(model)
    assert adoption.specs[0].dtype == {torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}[dtype]
    with torch.no_grad():
        model[0].weight.fill_(0.5)
    assert bool((adoption.read("0.weight") == 0.5).all())


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_empty_tensors_and_an_empty_model_are_no_trouble() -> None:
    Adoption(nn.Sequential()).adopted.settle()
    model = nn.Sequential(nn.Linear(0, 3))
    Adoption(model).adopted.settle()
    assert model[0].weight.shape == (3, 0)


@pytest.mark.parametrize(
    ("change", "now"),
    [(lambda model: model.half(), "float16"), (lambda model: setattr(model[0], "bias", None), "gone")],
)
def test_a_model_that_changed_its_shape_or_dtype_is_refused_by_name(
    change: Callable[[nn.Module], object], now: str
) -> None:
    model = net()
    adoption = Adoption(model)
    change(model)
    with pytest.raises(Refused, match=f"cannot average 0.*{now}"):
        adoption.adopted.settle()


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_lazy_module_is_refused_until_it_has_seen_a_batch() -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    with pytest.raises(Refused, match=r"cannot train a model whose 0.weight has no shape yet"):
        slots_of(model)
    model(torch.zeros(2, 4))
    assert len(slots_of(model)) == 7


class Odd(nn.Module):
    def __init__(self, tensor: torch.Tensor, learns: bool) -> None:
        super().__init__()
        self.odd = nn.Parameter(tensor, requires_grad=learns)


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(2, dtype=torch.complex64), torch.zeros(2, 2).to_sparse(), torch.zeros(2, device="meta")],
    ids=["complex", "sparse", "meta"],
)
def test_a_parameter_that_cannot_be_averaged_is_refused_by_name(tensor: torch.Tensor) -> None:
    with pytest.raises(Refused, match="cannot average odd"):
        slots_of(Odd(tensor, learns=True))


def test_a_buffer_that_is_not_finite_at_first_is_refused_by_name_and_passes_where_it_is_not_saved() -> None:
    """The causal mask of many a transformer: every check of the model would find it, window after window."""

    def masked(persistent: bool) -> nn.Module:
        model = nn.Linear(2, 2)
        model.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1), persistent=persistent)
        return model

    with pytest.raises(Refused, match=r"cannot average mask: .*before training begins") as refused:
        slots_of(masked(True))
    assert "persistent=False" in refused.value.fix
    assert [slot.name for slot in slots_of(masked(False))] == ["weight", "bias"]


def test_a_frozen_integer_parameter_is_carried() -> None:
    assert Adoption(Odd(torch.arange(3), learns=False)).specs[0].dtype == "I64"


def test_the_signature_tells_models_apart_by_shape_dtype_and_name() -> None:
    def sig(model: nn.Module) -> str:
        return signature([slot.spec for slot in slots_of(model)])

    assert sig(net()) == sig(net()) and len(sig(net())) == 64
    others = [net().double(), nn.Sequential(*net()[:3], nn.Linear(6, 3)), nn.ModuleList(net())[:3]]
    assert len({sig(model) for model in [net(), *others]}) == 4


def test_an_adopted_model_can_be_saved_and_copied_as_any_other(tmp_path: Path) -> None:
    model = net()
    Adoption(model)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    copied = copy.deepcopy(model)
    for name, tensor in model.state_dict().items():
        assert torch.equal(torch.load(tmp_path / "model.pt")[name], tensor)
        assert copied.state_dict()[name].data_ptr() != tensor.data_ptr()
    assert (tmp_path / "model.pt").stat().st_size < 10_000  # the tensors, not the whole buffer for each


def test_a_staged_model_keeps_its_storage_and_is_copied_at_the_rounds_edges() -> None:
    """As on a GPU, where the buffer cannot be the model."""
    model = net()
    pointers = [tensor.data_ptr() for tensor in model.state_dict().values()]
    adoption = Adoption(model, staged=True)
    steps(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    assert not torch.equal(adoption.read("0.weight"), model[0].weight)
    replace_parameter(model)
    adoption.adopted.settle()
    for name, tensor in model.state_dict().items():
        assert torch.equal(adoption.read(name), tensor)
    adoption.live.array[:] = 0
    assert all(tensor.any() for name, tensor in model.state_dict().items())
    adoption.adopted.refresh()
    assert all(not tensor.any() for tensor in model.state_dict().values())
    assert [tensor.data_ptr() for tensor in model.state_dict().values()][1:] == pointers[1:]
