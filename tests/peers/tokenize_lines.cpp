// For tokens_test.py and spm_test.py: opens the tokenizer of its argument and prints what it is. Then it answers each
// line of standard input, a JSON list of texts as hexadecimal bytes, by a line with their ids and decoded texts.
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "data/tokenizers/tokenizer.h"

namespace {

using Json = nlohmann::json;

Json json_of(const data::tokenizers::Special& special) {
  Json out = Json::object();
  const auto add = [&](const char* name, const std::optional<std::int64_t>& id) {
    if (id) out[name] = *id;
  };
  add("pad", special.pad);
  add("bos", special.bos);
  add("eos", special.eos);
  add("unk", special.unk);
  add("mask", special.mask);
  add("cls", special.cls);
  add("sep", special.sep);
  return out;
}

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

Json answer(const data::tokenizers::Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  Json rows = Json::array();
  const auto plain = tokenizer.encode_batch(texts, false);
  const auto with = tokenizer.encode_batch(texts, true);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    rows.push_back({{"plain", tokenizer.encode(texts[i], false)},
                    {"with_special", tokenizer.encode(texts[i], true)},
                    {"plain_in_batch", plain[i]},
                    {"with_special_in_batch", with[i]},
                    {"decoded", tokenizer.decode(with[i], true)},
                    {"decoded_with_special", tokenizer.decode(with[i], false)}});
  }
  return rows;
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 2) throw std::runtime_error("usage: peers_tokenize TOKENIZER");
  const auto tokenizer = data::tokenizers::open_tokenizer(arguments[1]);
  std::cout << Json{{"vocabulary", tokenizer->vocabulary()},
                    {"special", json_of(tokenizer->special())},
                    {"prefix", tokenizer->prefix()},
                    {"suffix", tokenizer->suffix()},
                    {"kind", tokenizer->kind()},
                    {"sha256", base::hex(tokenizer->sha256())}}
            << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> texts;
    for (const auto& hex : Json::parse(line)) texts.push_back(bytes_of(hex.get<std::string>()));
    std::cout << answer(*tokenizer, texts) << std::endl;
  }
} catch (const std::exception& error) {
  std::cerr << "peers_tokenize: " << error.what() << "\n";
  return 1;
}
