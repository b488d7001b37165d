//! The C border of the crate `tokenizers`. muster_tokenizers.h describes each function.
//!
//! No panic leaves this file: `guarded` makes it an error, because unwinding through C++ is undefined behaviour.
//! Memory that cannot be had ends the process, because Rust has no error for that.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void, CString};
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::slice;
use std::sync::Once;
use tokenizers::{ModelWrapper, Result, Tokenizer};

thread_local! {
    static ERROR: RefCell<CString> = RefCell::new(CString::default());
}

struct Opened {
    tokenizer: Tokenizer,
    vocabulary: u64,
}

fn fail(text: String) -> c_int {
    let without_nul: Vec<u8> = text.into_bytes().into_iter().filter(|&byte| byte != 0).collect();
    ERROR.with(|error| *error.borrow_mut() = CString::new(without_nul).unwrap_or_default());
    1
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "no text",
    }
}

fn guarded(work: impl FnOnce() -> Result<()>) -> c_int {
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => fail(error.to_string()),
        Err(payload) => fail(format!("a panic in the crate tokenizers: {}", text_of(&*payload))),
    }
}

unsafe fn view<'a, T>(data: *const T, count: usize) -> &'a [T] {
    // C++ gives a null pointer for an empty view.
    if count == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, count)
    }
}

/// The text with each invalid part replaced by U+FFFD. It is not copied if it is valid.
unsafe fn repaired<'a>(text: *const u8, bytes: usize) -> Cow<'a, str> {
    String::from_utf8_lossy(view(text, bytes))
}

unsafe fn opened<'a>(handle: *const c_void) -> &'a Opened {
    &*(handle as *const Opened)
}

/// The caller owns what the two places name, and gives it back to `take`.
unsafe fn give<T>(values: Vec<T>, data: *mut *mut T, count: *mut usize) {
    *count = values.len();
    *data = Box::into_raw(values.into_boxed_slice()) as *mut T;
}

unsafe fn take<T>(data: *mut T, count: usize) {
    if !data.is_null() {
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(data, count)));
    }
}

#[no_mangle]
pub extern "C" fn mt_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}

#[no_mangle]
pub unsafe extern "C" fn mt_open(json: *const u8, bytes: usize, out: *mut *mut c_void) -> c_int {
    // A panic is an error of this library. Its text must not also appear on standard error.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| panic::set_hook(Box::new(|_| {})));
    guarded(|| {
        let mut tokenizer = Tokenizer::from_bytes(view(json, bytes))?;
        if let ModelWrapper::BPE(model) = tokenizer.get_model() {
            if model.dropout.is_some_and(|rate| rate > 0.0) {
                return Err("its model drops merges at random: set \"dropout\" to null".into());
            }
        }
        // Rows are cut and padded by whoever makes batches.
        tokenizer.with_truncation(None)?.with_padding(None);
        let last = tokenizer.get_vocab(true).into_values().max();
        let vocabulary = last.map_or(0, |id| u64::from(id) + 1);
        *out = Box::into_raw(Box::new(Opened { tokenizer, vocabulary })) as *mut c_void;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn mt_close(handle: *mut c_void) {
    guarded(|| {
        if !handle.is_null() {
            drop(Box::from_raw(handle as *mut Opened));
        }
        Ok(())
    });
}

#[no_mangle]
pub unsafe extern "C" fn mt_encode(
    handle: *const c_void,
    text: *const u8,
    bytes: usize,
    with_special: c_int,
    ids: *mut *mut u32,
    count: *mut usize,
) -> c_int {
    guarded(|| {
        let encoding = opened(handle)
            .tokenizer
            .encode_fast(repaired(text, bytes), with_special != 0)?;
        give(encoding.get_ids().to_vec(), ids, count);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn mt_encode_batch(
    handle: *const c_void,
    texts: *const *const u8,
    bytes: *const usize,
    texts_count: usize,
    with_special: c_int,
    ids: *mut *mut u32,
    count: *mut usize,
    ends: *mut usize,
) -> c_int {
    guarded(|| {
        let inputs: Vec<Cow<str>> = view(texts, texts_count)
            .iter()
            .zip(view(bytes, texts_count))
            .map(|(&text, &size)| repaired(text, size))
            .collect();
        let encodings = opened(handle).tokenizer.encode_batch_fast(inputs, with_special != 0)?;
        let mut all = Vec::with_capacity(encodings.iter().map(|encoding| encoding.len()).sum());
        for (place, encoding) in encodings.iter().enumerate() {
            all.extend_from_slice(encoding.get_ids());
            *ends.add(place) = all.len();
        }
        give(all, ids, count);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn mt_decode(
    handle: *const c_void,
    ids: *const u32,
    count: usize,
    skip_special: c_int,
    text: *mut *mut u8,
    bytes: *mut usize,
) -> c_int {
    guarded(|| {
        let decoded = opened(handle).tokenizer.decode(view(ids, count), skip_special != 0)?;
        give(decoded.into_bytes(), text, bytes);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn mt_vocabulary(handle: *const c_void) -> u64 {
    opened(handle).vocabulary
}

#[no_mangle]
pub unsafe extern "C" fn mt_id(
    handle: *const c_void,
    piece: *const u8,
    bytes: usize,
    id: *mut u32,
    is_special: *mut c_int,
) -> c_int {
    guarded(|| {
        let tokenizer = &opened(handle).tokenizer;
        let piece = repaired(piece, bytes);
        *id = tokenizer
            .token_to_id(&piece)
            .ok_or_else(|| format!("no piece {piece:?}"))?;
        *is_special = c_int::from(tokenizer.get_added_vocabulary().is_special_token(&piece));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn mt_piece(handle: *const c_void, id: u32, text: *mut *mut u8, bytes: *mut usize) -> c_int {
    guarded(|| {
        let piece = opened(handle)
            .tokenizer
            .id_to_token(id)
            .ok_or_else(|| format!("no piece has the id {id}"))?;
        give(piece.into_bytes(), text, bytes);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn mt_free_ids(ids: *mut u32, count: usize) {
    take(ids, count);
}

#[no_mangle]
pub unsafe extern "C" fn mt_free_bytes(text: *mut u8, bytes: usize) {
    take(text, bytes);
}
