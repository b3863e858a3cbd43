// Patterns that buffers of modules hold and that no parameter starts from or is trained to. Each function looks
// at a sample of a float tensor's elements and is false for tensors without contents.
#pragma once

#include "engine/base/tensor.h"

namespace gradloom {

// 0 where a score stays, -50 or less (to -inf) where it is hidden; some of both.
bool is_additive_mask(const Tensor& tensor);

// Ones and zeros, some of both.
bool is_zero_one(const Tensor& tensor);
// The same, as the triangle of a square (the last two axes, or more columns): row i has the columns up to i + k,
// or from there on.
bool is_triangle(const Tensor& tensor);

// `first`, first + 1, ... along one axis, of 4 positions or more, and equal along all others.
bool is_range(const Tensor& tensor, double first);

// sin(w t + p), each column with its own w and p, for t along one axis: tables of rotary and of sinusoidal
// positions. Also of the positions of a square image, half of the columns for each axis; in both a row of
// zeros may stand for a token that has no position.
enum class Waves : std::uint8_t { none, cosines, sines, both };
Waves waves_of(const Tensor& tensor);

// 1, r, r^2, ... with r < 1 or, with 4 elements or more, another falling series from 1: frequencies of rotary
// positions.
bool is_frequencies(const Tensor& tensor);

// Slopes of ALiBi times distances: lines along the last axis whose slopes fall by one factor from head to head.
bool is_distance_bias(const Tensor& tensor);

// One filter for every channel of a depthwise convolution, [channels, 1, ...], not a uniform one.
bool is_shared_filter(const Tensor& tensor);

// Its square is a whole number of 4 or more: the scaling of attention scores.
bool is_root_of_integer(double number);

}  // namespace gradloom
