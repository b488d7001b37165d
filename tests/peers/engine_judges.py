"""The trainings that PyTorch does for comparison with the engine: by plain autograd, and by FSDP2.

A batch is (ids, targets), int64 [sequences, positions]. Targets of -100 do not count. A training returns the losses and the
norms of the gradients, lists of a number a step, and the last weights by name.
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HIDDEN = 19, 13, 29
BETAS, DECAY = (0.9, 0.95), 0.1


def normalise(x, gain):
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * gain


class Block(nn.Module):
    """As Block in tests/fsdp/small_model.h."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Parameter(torch.ones(WIDTH))
        self.up = nn.Parameter(torch.randn(HIDDEN, WIDTH) * 0.2)
        self.bias = nn.Parameter(torch.randn(HIDDEN) * 0.1)
        self.down = nn.Parameter(torch.randn(WIDTH, HIDDEN) * 0.2)
        self.tiny = nn.Parameter(torch.randn(3) * 0.1)
        self.frozen = nn.Parameter(torch.randn(5) * 0.1, requires_grad=False)
        self.unused = nn.Parameter(torch.randn(7))

    def forward(self, x):
        hidden = F.gelu(normalise(x, self.norm).to(self.up.dtype) @ self.up.t() + self.bias)
        return x + (hidden.to(self.down.dtype) @ self.down.t()) * (1 + self.tiny.sum() + self.frozen.sum())


class SmallModel(nn.Module):
    """The embedding is the head, too."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(VOCABULARY, WIDTH) * 0.5)
        for i in range(3):
            setattr(self, f"block{i}", Block())
        self.norm = nn.Parameter(torch.ones(WIDTH))

    def blocks(self):
        return [getattr(self, f"block{i}") for i in range(3)]

    def forward(self, ids, targets):
        """The sum of the losses of the targets that count."""
        x = F.embedding(ids, self.embedding)
        for block in self.blocks():
            x = block(x)
        logits = normalise(x, self.norm).to(self.embedding.dtype) @ self.embedding.t()
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")


def make_optimizer(model, rate):
    """Matrices decay, the rest does not."""
    groups = [{"params": [p for p in model.parameters() if p.requires_grad and (p.dim() >= 2) == decays],
               "weight_decay": DECAY if decays else 0.0} for decays in (True, False)]
    return torch.optim.AdamW(groups, rate, BETAS, fused=True)


def part_of(batch, part, parts):
    return tuple(tensor.chunk(parts)[part] for tensor in batch)


def weight_of(batch):
    return (batch[1] != -100).sum().item()


def norm_of(gradients):
    return torch.stack([gradient.double().square().sum() for gradient in gradients]).sum()


def train_plainly(model, batches, ranks, rate, dtype_of=lambda parameter: torch.float32, loss_of=None,
                  weight_of=weight_of, make_optimizer=make_optimizer):
    """One process. Gradients are the sum over the parts that the ranks would have. `dtype_of`: of forward and backward; weights and
    their gradients are fp32. `loss_of(model, *batch)`: the sum of the losses, in place of the model's own. A batch may then have more
    tensors behind its targets. `weight_of(batch)`: what that sum is divided by. `make_optimizer(model, rate)`: in place of AdamW."""
    optimizer = make_optimizer(model, rate)
    losses, norms = [], []
    for batch in batches:
        loss = 0.0
        for rank in range(ranks):
            part = part_of(batch, rank, ranks)
            if loss_of:
                own = loss_of(model, *part)
            else:
                cast = {name: parameter.to(dtype_of(parameter)) for name, parameter in model.named_parameters()}
                own = torch.func.functional_call(model, cast, part)
            own = own / weight_of(batch)
            own.backward()
            loss += own.item()
        losses.append(loss)
        norms.append(norm_of(p.grad for p in model.parameters() if p.grad is not None).sqrt().item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms, {name: parameter.detach() for name, parameter in model.named_parameters()}


def fsdp2_rank(rank, ranks, folder, weights, batches, rate, is_bf16):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), ranks)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    model = SmallModel()
    model.load_state_dict(weights)
    options = {"mesh": init_device_mesh("cpu", (ranks,))}
    if is_bf16:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks():
        fully_shard(block, **options)
    fully_shard(model, **options)
    optimizer = make_optimizer(model, rate)
    losses, norms = [], []
    for batch in batches:
        loss = model(*part_of(batch, rank, ranks)) / weight_of(batch)
        (loss * ranks).backward()
        squares = norm_of(p.grad.to_local() for p in model.parameters() if p.grad is not None)
        both = torch.stack([loss.detach().double(), squares])
        dist.all_reduce(both)
        losses.append(both[0].item())
        norms.append(both[1].sqrt().item())
        optimizer.step()
        optimizer.zero_grad()
    state = {name: parameter.full_tensor() for name, parameter in model.state_dict().items()}
    if rank == 0:
        torch.save((losses, norms, state), os.path.join(folder, "trained"))
    # A rank that leaves closes its connections, which is an error for those that still use Gloo.
    store.set(f"done-{rank}", "yes")
    store.wait([f"done-{other}" for other in range(ranks)])
    os._exit(0)  # Gloo's end of a process sometimes aborts it: "terminate called without an active exception"


def train_by_fsdp2(weights, batches, ranks, rate, is_bf16=False):
    """A process a rank."""
    with tempfile.TemporaryDirectory() as folder:
        # Their parent has imported PyTorch once for all. Importing takes longer than the training.
        torch.multiprocessing.set_forkserver_preload(["torch.distributed.fsdp", "torch.distributed.device_mesh"])
        torch.multiprocessing.start_processes(fsdp2_rank, (ranks, folder, weights, batches, rate, is_bf16), nprocs=ranks,
                                              start_method="forkserver")
        return torch.load(os.path.join(folder, "trained"))
