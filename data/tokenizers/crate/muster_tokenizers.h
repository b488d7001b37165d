#pragma once

#include <stddef.h>
#include <stdint.h>

/* The C border of the Rust crate tokenizers; src/lib.rs implements it.
 *
 * Functions that give an int return 0, or 1 after an error. Then mt_error() has the text, and nothing was written to
 * the places of results. A panic of the crate is such an error. Texts and pieces are UTF-8 without a final NUL; what is
 * not valid is read as U+FFFD. A handle may be used by several threads at the same time. */

#ifdef __cplusplus
extern "C" {
#endif

/* The text of this thread's last error, until its next one. */
const char* mt_error(void);

/* Opens the text of a tokenizer.json. Its settings for truncation and padding are not used. */
int mt_open(const uint8_t* json, size_t bytes, void** out);
void mt_close(void* handle);

/* `ids` is given back by mt_free_ids(ids, count). */
int mt_encode(const void* handle, const uint8_t* text, size_t bytes, int with_special, uint32_t** ids, size_t* count);

/* Encodes on all cores. `ids` has the ids of all texts one after another, and is given back by mt_free_ids(ids, count).
 * `ends` is the caller's array of texts_count numbers. ends[i] is where the ids of text i end. */
int mt_encode_batch(const void* handle, const uint8_t* const* texts, const size_t* bytes, size_t texts_count,
                    int with_special, uint32_t** ids, size_t* count, size_t* ends);

/* Ids without a piece are passed over. `text` is given back by mt_free_bytes(text, bytes). */
int mt_decode(const void* handle, const uint32_t* ids, size_t count, int skip_special, uint8_t** text, size_t* bytes);

/* The largest id and 1, added tokens included; 0 for an empty vocabulary. */
uint64_t mt_vocabulary(const void* handle);

/* The id of a piece. `is_special`: 1 if it is an added token that decoding can skip. */
int mt_id(const void* handle, const uint8_t* piece, size_t bytes, uint32_t* id, int* is_special);

/* `text` is given back by mt_free_bytes(text, bytes). */
int mt_piece(const void* handle, uint32_t id, uint8_t** text, size_t* bytes);

void mt_free_ids(uint32_t* ids, size_t count);
void mt_free_bytes(uint8_t* text, size_t bytes);

#ifdef __cplusplus
}
#endif
