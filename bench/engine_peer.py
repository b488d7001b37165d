"""What bench/engine.cpp measures, of plain PyTorch and FSDP2: steps of the same decoder.

Usage: engine_peer.py with the options of engine_bench. Needs PyTorch 2.6 or newer and nothing else; --compile on CPUs also a C++ compiler.
--strategy: full_shard and shard_grad_op are FSDP2's reshard_after_forward, hybrid_shard is FSDP2 on a mesh of pairs, and
no_shard is DistributedDataParallel. Rank 0 prints one JSON line; what PyTorch does not tell is null there.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

RATE, BETAS, EPS, DECAY = 3e-4, (0.9, 0.95), 1e-8, 0.1
STRATEGIES = ["full_shard", "shard_grad_op", "no_shard", "hybrid_shard"]


class RmsNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


def apply_rope(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def mask_of_documents(o):
    """What tokens of packed documents see, as transformers gives it to SDPA: bool [1, 1, seq, seq]. None: a row is one text."""
    if not o.document:
        return None
    number = torch.arange(o.seq, device=o.device) // o.document
    return (number[:, None] == number[None, :]).tril()[None, None]


class Layer(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.heads, self.kv_heads, self.size = o.heads, o.kv_heads, o.dim // o.heads
        self.checkpointing = o.checkpointing
        self.mask = mask_of_documents(o)
        self.q_proj = nn.Linear(o.dim, o.heads * self.size, bias=False)
        self.k_proj = nn.Linear(o.dim, o.kv_heads * self.size, bias=False)
        self.v_proj = nn.Linear(o.dim, o.kv_heads * self.size, bias=False)
        self.o_proj = nn.Linear(o.heads * self.size, o.dim, bias=False)
        self.gate_proj = nn.Linear(o.dim, o.intermediate, bias=False)
        self.up_proj = nn.Linear(o.dim, o.intermediate, bias=False)
        self.down_proj = nn.Linear(o.intermediate, o.dim, bias=False)
        self.input_layernorm = RmsNorm(o.dim)
        self.post_attention_layernorm = RmsNorm(o.dim)

    def attention(self, x, cos, sin):
        batch, positions, _ = x.shape

        def split(t, heads):
            return t.view(batch, positions, heads, self.size).transpose(1, 2)

        q = apply_rope(split(self.q_proj(x), self.heads), cos, sin)
        k = apply_rope(split(self.k_proj(x), self.kv_heads), cos, sin)
        v = split(self.v_proj(x), self.kv_heads)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, is_causal=self.mask is None,
                                             enable_gqa=self.kv_heads != self.heads)
        return self.o_proj(out.transpose(1, 2).reshape(batch, positions, self.heads * self.size))

    def compute(self, x, cos, sin):
        x = x + self.attention(self.input_layernorm(x), cos, sin)
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))

    def forward(self, x, cos, sin):
        if self.checkpointing:
            return checkpoint(self.compute, x, cos, sin, use_reentrant=False)
        return self.compute(x, cos, sin)


class Decoder(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.size, self.document = o.dim // o.heads, o.document
        self.embed_tokens = nn.Embedding(o.vocab, o.dim)
        self.layers = nn.ModuleList(Layer(o) for _ in range(o.layers))
        self.norm = RmsNorm(o.dim)
        self.lm_head = nn.Linear(o.dim, o.vocab, bias=False)
        self.rope = None

    def tables(self, positions, dtype, device):
        """Computed once, as the model has one length."""
        if self.rope is None:
            place = torch.arange(positions, device=device) % (self.document or positions)
            frequency = 1.0 / 10000.0 ** (torch.arange(0, self.size, 2, device=device) / self.size)
            half = torch.outer(place.float(), frequency)
            angle = torch.cat((half, half), -1)
            self.rope = angle.cos().to(dtype), angle.sin().to(dtype)
        return self.rope

    def forward(self, ids, targets):
        x = self.embed_tokens(ids)
        cos, sin = self.tables(ids.shape[1], x.dtype, x.device)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.lm_head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def draw(model):
    for name, parameter in model.named_parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        local.fill_(1.0) if name.endswith("norm.weight") else local.normal_(0, 0.02)


def compile_layers(o, model):
    if o.compile:
        for i, layer in enumerate(model.layers):
            model.layers[i] = torch.compile(layer, fullgraph=True)


class Plain:
    """One model on one rank. In bf16 the optimizer has fp32 masters."""

    def __init__(self, o, device):
        self.model = self.called = Decoder(o).to(device)
        compile_layers(o, self.model)
        draw(self.model)
        self.parameters = list(self.model.parameters())
        self.masters = self.parameters
        if o.dtype == "bf16":
            self.masters = [nn.Parameter(parameter.detach().clone()) for parameter in self.parameters]
            self.model.bfloat16()
        self.optimizer = torch.optim.AdamW(self.masters, RATE, BETAS, EPS, DECAY, fused=True)

    def update(self):
        if self.masters is not self.parameters:
            for master, parameter in zip(self.masters, self.parameters):
                master.grad = parameter.grad.float()
                parameter.grad = None
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.masters is not self.parameters:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.masters)


class Sharded:
    """FSDP2, a unit a layer and the root, as torchtitan does."""

    def __init__(self, o, device):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        with torch.device("meta"):
            self.model = self.called = Decoder(o)
        world = dist.get_world_size()
        if o.strategy == "hybrid_shard":
            mesh = init_device_mesh(device.type, (world // 2, 2), mesh_dim_names=("replicate", "shard"))
        else:
            mesh = init_device_mesh(device.type, (world,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if o.dtype == "bf16" else \
            MixedPrecisionPolicy()
        compile_layers(o, self.model)
        for layer in self.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=o.strategy != "shard_grad_op")
        fully_shard(self.model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
        self.model.to_empty(device=device)
        draw(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), RATE, BETAS, EPS, DECAY, fused=True)

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


class Replicated:
    """DistributedDataParallel."""

    def __init__(self, o, device):
        if o.dtype != "fp32":
            sys.exit("engine_peer: --strategy no_shard wants --dtype fp32: DistributedDataParallel has no fp32 masters")
        self.model = Decoder(o).to(device)
        draw(self.model)
        self.called = nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), RATE, BETAS, EPS, DECAY, fused=True)

    update = Sharded.update


def seconds_since_boot():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_start():
    """When this process started, in seconds since boot, to 10 ms."""
    with open("/proc/self/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def train(rank, o, store, started):
    torch.set_num_threads(1)
    is_cuda = o.device == "cuda"
    device = torch.device("cuda", rank) if is_cuda else torch.device("cpu")
    synchronise = torch.cuda.synchronize if is_cuda else lambda: None
    if is_cuda:
        torch.cuda.set_device(device)
    if not o.plain:
        dist.init_process_group("nccl" if is_cuda else "gloo", rank=rank, world_size=o.world_size,
                                store=dist.FileStore(store, o.world_size), device_id=device if is_cuda else None)
    torch.manual_seed(1)
    trainee = (Plain if o.plain else Replicated if o.strategy == "no_shard" else Sharded)(o, device)
    torch.manual_seed(100 + rank)
    tokens = torch.randint(o.vocab, (o.batch, o.seq + 1))
    ids, targets = tokens[:, :-1].contiguous().to(device), tokens[:, 1:].contiguous().to(device)

    def step():
        loss = trainee.called(ids, targets)
        loss.backward()
        trainee.update()
        return loss

    step()
    synchronise()
    first = seconds_since_boot() - started
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(o.warm_up - 1):
        step()
    synchronise()
    if not o.plain:
        dist.barrier()
    before = resource.getrusage(resource.RUSAGE_SELF)
    took, begun = [], time.perf_counter()
    last = begun
    for _ in range(o.steps):
        loss = step()
        now = time.perf_counter()
        took.append(now - last)
        last = now
    synchronise()
    step_ms = 1e3 * ((time.perf_counter() - begun) / o.steps if is_cuda else statistics.median(took))
    after = resource.getrusage(resource.RUSAGE_SELF)
    loss = loss.detach()
    if not o.plain:
        dist.all_reduce(loss)
    if rank == 0:
        print(json.dumps({
            "step_ms": step_ms, "tokens_per_s": o.batch * o.seq * o.world_size / step_ms * 1e3,
            "peak_rss_mb": after.ru_maxrss * 1024 / 1e6, "tensor_peak_mb": None,
            "peak_cuda_mb": torch.cuda.max_memory_allocated() / 1e6 if is_cuda else None,
            "loss": loss.item() / o.world_size, "system_time_s": after.ru_stime - before.ru_stime,
            "minor_faults": after.ru_minflt - before.ru_minflt, "start_to_first_step_s": first}), flush=True)
    if not o.plain:
        dist.barrier()
        if o.world_size > 1:
            os._exit(0)  # Gloo's end of a process sometimes aborts it: "terminate called without an active exception"
        dist.destroy_process_group()


def parse():
    parser = argparse.ArgumentParser(description="Steps of a decoder under PyTorch and FSDP2.")
    for name, value in [("dim", 256), ("layers", 8), ("heads", 4), ("kv-heads", 0), ("intermediate", 0), ("vocab", 1024),
                        ("seq", 128), ("document", 0), ("batch", 2), ("steps", 10), ("warm-up", 3), ("world-size", 1)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--strategy", choices=STRATEGIES, default="full_shard")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile() each layer, as torchtitan does")
    parser.add_argument("--plain", action="store_true", help="one rank, without FSDP2")
    o = parser.parse_args()
    o.kv_heads = o.kv_heads or o.heads
    o.intermediate = o.intermediate or (o.dim * 8 // 3 + 31) // 32 * 32
    if o.plain and o.world_size != 1:
        parser.error("--plain wants --world-size 1")
    return o


def main():
    o, started = parse(), process_start()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        if o.world_size == 1:
            train(0, o, store, started)
        else:
            torch.multiprocessing.spawn(train, (o, store, started), nprocs=o.world_size)


if __name__ == "__main__":
    main()
