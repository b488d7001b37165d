#include "data/prepare/help.h"

namespace data::prepare {

const char* const kHelp = R"(muster data COMMAND ...

Makes training data of texts, tables of texts, or images: files that all ranks of a node map, with
checksums and with the tokenizer that made them. muster-data is the same program under its own name.

  prepare   make a folder of data
  show      what a folder holds
  check     read every byte of a folder and compare the checksums
  decode    print one record

Exit codes: 0 done; 1 the system refused, such as a full disk; 2 wrong usage, source or data; 130 and
143 stopped by SIGINT or SIGTERM.
muster data COMMAND --help says more.
)";

const char* const kPrepareHelp = R"(muster data prepare --from KIND [SOURCE...] --to FOLDER [OPTIONS]

Reads a source, turns it into tokens or pixels, and writes them to FOLDER. The same command again goes
on where it was stopped or killed, and any number of --jobs gives the same bytes. Other options into the
same folder are refused. FOLDER can be used once data.json is in it.

KIND and SOURCE
  text       files or folders of text; a file is a record, and a large one several
  jsonl      files with a JSON object a line
  man        manual pages as text; SOURCE: their folder, /usr/share/man if it is left out
  man-pairs  DESCRIPTION of manual pages as input, what NAME says as target; SOURCE as for man
  packages   descriptions of Debian packages, the section as label; SOURCE: files of control
             paragraphs, this machine's package lists if it is left out
  chess      games that a simple player plays against itself
  images     a folder of .jpg, .png, .ppm and .pgm files; its subfolders are the labels
  shapes     drawn shapes of 8 labels, for tests and examples
  glyphs     drawn digits and capital letters, 36 labels
  textures   drawn patterns of 8 labels, which any part of an image shows
  fixture    a small text that is built in
  auto       man if there are enough manual pages, else fixture; SOURCE as for man

Every source
  --to FOLDER          a new folder, or one that this command has begun
  --cache FOLDER       instead of --to: a folder of their own in FOLDER, whose path is printed. Data that
                       are there already are checked and used; of several processes one makes them
  --name-only          with --cache: print that path, whether data are there or not, and make nothing
  --validation SHARE   share of the records for the split "validation", 0 to 0.9 (0.05)
  --seed N             of the validation split, and of what is drawn or played (1)
  --jobs N             threads (one a core)
  --skip-damaged       jsonl, images: leave out lines and files that cannot be read, name the first ones on
                       stderr, and tell how many there were

Texts
  --tokenizer PATH     bytes, a folder with tokenizer.json or tokenizer.model, or one of these files (bytes)
  --prefix TEXT        put before each text, or before a pair's input: "summarize: "
  --max-bytes SIZE     text, jsonl, man, fixture, auto: no more than this (16MiB; all)
  --part-size SIZE     text, jsonl: bytes of the source in one file (64MiB)
  --count N            chess: games (10000); man-pairs: pages (all)
  --fields FIELDS      jsonl: text, or input,target, or text,label (text). text=body takes the key "body"
                       of the object; meta.title leads into the object "meta"
  --labels A,B,...     jsonl: the labels in the order of their numbers (all that the files have, sorted)
  --sections N         packages: keep the N largest sections, 0 keeps all (12)
  --notation san|uci   chess (san)
  --plies N            chess: half-moves of a game at most, 1 to 1000 (60)

Images
  --size N             images: the shorter side is shrunk to N pixels (256);
                       shapes, glyphs, textures: pixels a side, 8 to 1024 (48)
  --count N            shapes, glyphs, textures (4096)

  muster data prepare --from jsonl train.jsonl --to data --tokenizer models/t5 --fields input=article,target=title
  muster data prepare --from chess --count 100000 --to games --tokenizer models/codellama --jobs 8
  muster data prepare --from images photos/ --to pictures --size 224
)";

const char* const kShowHelp = R"(muster data show FOLDER [--json]

Prints what the folder holds: source, tokenizer, labels, and of each split records, elements and files.

  --json   print data.json
)";

const char* const kCheckHelp = R"(muster data check FOLDER

Reads every byte and compares the checksums, the fingerprint and the copied tokenizer. Exit code 2 and the
file and block of the first damage, if there is one.
)";

const char* const kDecodeHelp = R"(muster data decode FOLDER [--record N] [--split NAME] [--ids] [--to FILE]

Prints a record: its label, and each field as the folder's own tokenizer decodes it.

  --record N     counted from 0 (0)
  --split NAME   train or validation (train)
  --ids          print the tokens' numbers
  --to FILE      write an image to a PPM file
)";

}  // namespace data::prepare
