"""Activations of the engine: packed documents beside a dense mask in PyTorch, and layers that are computed again."""

from engine import Programs, middle, ratio
from promise import Promise

# Rows of 1,024 tokens hold documents of these lengths.
DOCUMENTS = (128, 512)
KEPT = ("nothing", "none", "linear", "attention", "both")
OF_KEPT = {"nothing": "not computed again", "none": "inputs", "linear": "inputs, products", "attention": "inputs, attention",
           "both": "inputs, products, attention"}


def packed(programs, document):
    options = ["--batch", "1", "--seq", "1024", "--document", str(document)]
    return programs.rounds({"muster": ("muster", *options), "pytorch": ("pytorch", "--plain", *options)}, 5)


def packed_row(document, of):
    return (f"| {document} | {middle(of['muster'], 'step_ms'):.0f} ms | {middle(of['pytorch'], 'step_ms'):.0f} ms | "
            f"{ratio(of['pytorch'], of['muster']):.2f} | {middle(of['muster'], 'peak_rss_mb'):.0f} MB | "
            f"{middle(of['pytorch'], 'peak_rss_mb'):.0f} MB |")


def recomputed(programs):
    options = ["--batch", "2", "--seq", "512"]
    of_what = {"nothing": []} | {what: ["--checkpointing", "--keep", what] for what in KEPT[1:]}
    return programs.rounds({what: ("muster", *options, *more) for what, more in of_what.items()}, 5)


def recomputed_row(what, of):
    return (f"| {OF_KEPT[what]} | {middle(of[what], 'step_ms'):.0f} ms | {ratio(of[what], of['nothing']):.2f} | "
            f"{middle(of[what], 'tensor_peak_mb'):.0f} MB |")


def measure(binaries, quick):
    programs = Programs(binaries, quick)
    packs = {document: packed(programs, document) for document in DOCUMENTS}
    again = recomputed(programs)
    text = "\n".join([
        "# Activations", "",
        "Steps of the decoder of [engine.md](engine.md), 8 layers of width 256 in fp32, on one rank with one thread. A number is the",
        "median over rounds, and a round runs every program once. Ratios are medians over rounds, too.", "",
        "## Packed documents", "",
        "A row of 1,024 tokens holds documents that do not see each other. PyTorch's attention gets a mask of 1,024 x 1,024, as",
        "transformers makes it. The engine computes document by document and has none.", "",
        "| tokens of a document | muster | PyTorch | PyTorch / muster | muster, resident | PyTorch, resident |", "|---|---|---|---|---|---|",
        *(packed_row(document, of) for document, of in packs.items()), "",
        "## Layers that are computed again in backward", "",
        "Two rows of 512 tokens. The columns are what backward finds of a layer, a step, a step beside one that computes nothing",
        "again, and the bytes of tensors at the peak.", "",
        "| kept of a layer | step | / not computed again | tensors |", "|---|---|---|---|", *(recomputed_row(what, again) for what in KEPT)]) + "\n"
    promises = [Promise(f"PyTorch's step over muster's with documents of {document}", ratio(of["pytorch"], of["muster"]), at_least=1.2)
                for document, of in packs.items()]
    promises.append(Promise("a step that keeps products over one that keeps inputs alone", ratio(again["linear"], again["none"]), at_most=0.97))
    promises.append(Promise("tensors with layers that are computed again over those without",
                            middle(again["none"], "tensor_peak_mb") / middle(again["nothing"], "tensor_peak_mb"), at_most=0.6))
    return text, promises
