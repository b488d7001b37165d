"""Goal: adapters beside a quantised base train under muster as under PEFT with bitsandbytes, whose formats muster's are.

Method: as lora_test.py; bitsandbytes quantises the base on the CPU. For int8 PEFT trains beside a base that has the values of
bitsandbytes' quantize_blockwise(), because the 8 bits of its linear layer are LLM.int8(), which has a scale for each row.
`qlora_test.py --write` writes what bitsandbytes makes of the values of tests/fsdp/packing_test.cpp to
tests/golden/formats_of_bitsandbytes.json.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import copy
import json
import pathlib
import sys
import unittest

import bitsandbytes
import bitsandbytes.functional as B
import torch

INT8_BLOCK = 256
GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "formats_of_bitsandbytes.json"


def bits(tensor):
    """Numbers as hexadecimal digits, the first number first."""
    whole = tensor.flatten().contiguous()
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[whole.element_size()]
    digits = 2 * whole.element_size()
    return "".join(f"{number % 16**digits:0{digits}x}" for number in whole.view(kind).tolist())


def golden():
    shares = torch.tensor([(i * 2654435761) % 2**32 / 2**31 - 1 for i in range(1061)], dtype=torch.float64)
    values = (shares * shares * shares * 0.05).float()
    codes, state = B.quantize_4bit(values, blocksize=64, quant_type="nf4")
    nf4 = {"codes": bits(codes), "scales": bits(state.absmax), "fp32": bits(B.dequantize_4bit(codes, state))}
    state.dtype = torch.bfloat16
    nf4["bf16"] = bits(B.dequantize_4bit(codes, state))
    codes, state = B.quantize_blockwise(values, blocksize=INT8_BLOCK)
    int8 = {"codes": bits(codes), "scales": bits(state.absmax), "fp32": bits(B.dequantize_blockwise(codes, state))}
    return {"bitsandbytes": bitsandbytes.__version__, "nf4": nf4, "int8": int8}


def qlora_tests():
    """Imported late: they want the programs of a build, which --write does not need."""
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    import lora_test
    from engine_judges import train_plainly

    class Qlora(lora_test.Lora):
        family = "llama"

        def peer(self):
            """Columns are multiples of 64: where a block spans rows, bitsandbytes' kernel for AVX-512 gives other scales to its end."""
            peer = copy.copy(super().peer())
            peer.sizes = {**peer.sizes, "hidden_size": 64, "intermediate_size": 128}
            return peer

        def base_in_nf4(self):
            config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
            return AutoModelForCausalLM.from_pretrained(self.folder / "base", quantization_config=config, device_map="cpu",
                                                        torch_dtype=torch.float32)

        def base_in_int8(self):
            model = self.peer().load(self.folder / "base")
            for name, module in model.named_modules():
                if isinstance(module, torch.nn.Linear) and name not in ("lm_head", "embed_out"):
                    codes, state = B.quantize_blockwise(module.weight.data, blocksize=INT8_BLOCK)
                    module.weight.data = B.dequantize_blockwise(codes, state)
            return model

        def check(self, case, ranks, quantize_base, base, most, **options):
            self.make_base(case)
            options |= {"lora_rank": 4}
            self.train_by_muster(ranks, "first", learning_rate=1e-30, export_merged=False, **options)
            # In training, because bitsandbytes packs weights for inference otherwise. There is no dropout.
            model = PeftModel.from_pretrained(base(), self.folder / "first", is_trainable=True).train()
            losses, norms, weights = train_plainly(model, [self.batch] * lora_test.STEPS, 1, lora_test.RATE, loss_of=self.loss_of)
            self.assertLess(losses[-1], 0.95 * losses[0], "it must learn, or equality says little")
            got = self.train_by_muster(ranks, "apart", learning_rate=lora_test.RATE, export_merged=False,
                                       quantize_base=quantize_base, **options)
            self.check_close(got[0], losses, most, most, f"loss beside {quantize_base}")
            self.check_close(got[1], norms, 10 * most, 20 * most, f"norm beside {quantize_base}")
            adapters = {name.replace(".default.", "."): value for name, value in weights.items() if "lora_" in name}
            exported = load_file(self.folder / "apart" / "adapter_model.safetensors")
            self.assertEqual(exported.keys(), adapters.keys())
            plainly = train_plainly(self.load_by_peft("first", is_trainable=True), [self.batch], 1, lora_test.RATE,
                                    loss_of=self.loss_of)[0]
            self.assertGreater(abs(plainly[0] - losses[0]), 5 * abs(got[0][0] - losses[0]), "a base that is not quantised differs")

        def test_beside_nf4_of_bitsandbytes(self):
            self.check("grouped", 2, "nf4", self.base_in_nf4, 1e-5)

        def test_beside_nf4_with_biases(self):
            self.check("attention_bias", 1, "nf4", self.base_in_nf4, 1e-5)

        def test_beside_int8_of_bitsandbytes(self):
            self.check("grouped", 2, "int8", self.base_in_int8, 1e-3)

    class QloraOfGptNeoX(Qlora):
        family = "gpt_neox"

        def test_beside_nf4_of_bitsandbytes(self):
            self.check("parallel", 2, "nf4", self.base_in_nf4, 1e-5)

        test_beside_nf4_with_biases = test_beside_int8_of_bitsandbytes = None

    class Formats(unittest.TestCase):
        def test_the_golden_file_is_what_bitsandbytes_gives(self):
            want = json.loads(GOLDEN.read_text())
            got = golden()
            self.assertEqual(got["nf4"], want["nf4"])
            self.assertEqual(got["int8"]["scales"], want["int8"]["scales"])

    return Qlora, QloraOfGptNeoX, Formats


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        GOLDEN.write_text(json.dumps(golden(), indent=0) + "\n")
    else:
        Qlora, QloraOfGptNeoX, Formats = qlora_tests()
        unittest.main()
