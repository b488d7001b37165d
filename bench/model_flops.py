"""The arithmetic of a decoder such as Llama: parameters, FLOPs of a token, memory of a rank, and model FLOP utilisation (MFU).

A token of a training costs 6 N + 12 l h q t FLOPs: PaLM (Chowdhery et al. 2022, appendix B), as torchtitan counts it. N is the
number of parameters without the embedding, which no matrix product reads; l layers, h heads of width q, t positions of a sequence.
Attention counts as if it were not causal. What is computed again in backward does not count.
"""

import dataclasses

# Dense bf16 FLOPs a second without sparsity, as NVIDIA's data sheets have them. The first row whose words are all in the name counts.
PEAKS = ((("GB200",), 2.5e15), (("B200",), 2.25e15), (("H200", "NVL"), 835e12), (("H200",), 989e12), (("H100", "NVL"), 835e12),
         (("H100", "PCIe"), 756e12), (("H100",), 989e12), (("A100",), 312e12), (("L40S",), 362e12), (("A40",), 150e12), (("L4",), 121e12))
STATE_BYTES = 16  # a parameter's fp32 value, gradient and two averages of AdamW, spread over all ranks
CHECKPOINT_BYTES = 12  # the same without the gradient


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int

    def head_width(self):
        return self.width // self.heads

    def layer_parameters(self):
        attention = 2 * self.width * self.heads * self.head_width() + 2 * self.width * self.kv_heads * self.head_width()
        return attention + 3 * self.width * self.intermediate + 2 * self.width

    def parameters(self):
        """All of them; embedding and head are two tables."""
        return 2 * self.vocabulary * self.width + self.layers * self.layer_parameters() + self.width

    def flops_per_token(self, positions):
        without_embedding = self.parameters() - self.vocabulary * self.width
        return 6 * without_embedding + 12 * self.layers * self.heads * self.head_width() * positions

    def rank_bytes(self, ranks, tokens):
        """About what a rank of a training in bf16 needs on its GPU, with each block computed again in backward: states, three gathered
        units with their gradients, a block's input for each layer, the inside of one block, and logits of `tokens` in fp32 and bf16
        with their gradient, which FSDP2 keeps at once. It is for the choice of a shape; a training plans its memory by itself."""
        units = 3 * 6 * max(self.layer_parameters(), self.vocabulary * self.width)
        inputs = 2 * tokens * self.width * self.layers
        block = 2 * tokens * (16 * self.width + 6 * self.intermediate)
        return STATE_BYTES * self.parameters() // ranks + units + inputs + block + 10 * tokens * self.vocabulary


# Llama 3.1 8B, Llama 3.2 3B and 1B with a head of its own, a model for small GPUs, and one for tests on CPUs.
SHAPES = (Shape("8B", 32, 4096, 32, 8, 14336, 128256), Shape("3B", 28, 3072, 24, 8, 8192, 128256),
          Shape("1B", 16, 2048, 32, 8, 8192, 128256), Shape("125M", 12, 768, 12, 4, 2048, 32000))
TINY = Shape("tiny", 2, 64, 4, 2, 128, 512)


def peak_flops(gpu):
    """Dense bf16 FLOPs a second of a GPU by the driver's name of it; None: not in the list."""
    return next((peak for words, peak in PEAKS if all(word.lower() in gpu.lower() for word in words)), None)


def utilisation(shape, positions, tokens_per_s, peak):
    """MFU as a share of 1. `tokens_per_s` is that of one GPU, and so is `peak`, in FLOPs a second."""
    return shape.flops_per_token(positions) * tokens_per_s / peak


def largest_that_fits(ranks, tokens, memory_bytes, share=0.9):
    """The largest of SHAPES whose rank needs at most this share of a GPU's memory; None: none does."""
    return next((shape for shape in SHAPES if shape.rank_bytes(ranks, tokens) <= share * memory_bytes), None)
