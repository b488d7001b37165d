#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace common {

/// A refusal that a person can act on; rpc/ and http/ map the kind to their own codes.
struct Refusal {
  /// kUnavailable: it may have been carried out all the same. kUnchanged: the store took it not; try again.
  enum class Kind { kInvalid, kNotFound, kWrongState, kLimit, kUnavailable, kUnchanged, kUnauthenticated };
  Kind kind = Kind::kInvalid;
  std::string text;

  static Refusal invalid(std::string text) { return {Kind::kInvalid, std::move(text)}; }
  static Refusal not_found(std::string text) { return {Kind::kNotFound, std::move(text)}; }
  static Refusal wrong_state(std::string text) { return {Kind::kWrongState, std::move(text)}; }
  static Refusal limit(std::string text) { return {Kind::kLimit, std::move(text)}; }
  static Refusal no_job(std::int64_t id) { return not_found("there is no job " + std::to_string(id)); }
  static Refusal unavailable(std::string text) { return {Kind::kUnavailable, std::move(text)}; }
};

/// Refusal of what only Slurm can do. `why`: why there is no Slurm, with the remedy; empty: not known.
inline Refusal no_slurm(const std::string& why) {
  return Refusal::wrong_state("this controller has no Slurm: " +
                              (why.empty() ? "start musterd where sbatch is to be found" : why));
}

/// A value or a refusal.
template <typename T>
class Outcome {
 public:
  Outcome(T value) : value_(std::move(value)) {}              // NOLINT: conversion is the point
  Outcome(Refusal refusal) : refusal_(std::move(refusal)) {}  // NOLINT
  bool ok() const { return value_.has_value(); }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  const Refusal& refusal() const { return refusal_; }

 private:
  std::optional<T> value_;
  Refusal refusal_;
};

}  // namespace common
