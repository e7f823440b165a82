package arena

import (
	"fmt"
	"strings"
	"testing"

	"meridian/internal/golden"
	"meridian/keep/store/extent"
)

func TestGeneratedDocument(t *testing.T) {
	var b strings.Builder
	for _, r := range Layout {
		fmt.Fprintf(&b, "\n## %s, %d bytes\n\n%s\n\n| Offset | Bytes | Field | |\n|---|---|---|---|\n", r.Name, r.Size, r.Means)
		for _, f := range r.Fields {
			fmt.Fprintf(&b, "| %d | %d | `%s` | %s |\n", f.Offset, f.Size, f.Name, f.Means)
		}
	}
	b.WriteByte('\n')
	golden.Section(t, "../../../docs/store-layout.md", "records", b.String())
}

func TestGeneratedHeaderFile(t *testing.T) {
	var b strings.Builder
	b.WriteString(`// The arena of Meridian's object cache, version 1: docs/store-layout.md says what
// each field means, store.hpp has what producers and readers do. Made from
// keep/store/arena; do not edit.

#ifndef MERIDIAN_STORE_LAYOUT_HPP
#define MERIDIAN_STORE_LAYOUT_HPP

#include <cstddef>
#include <cstdint>

namespace meridian::store {

`)
	fmt.Fprintf(&b, "inline constexpr std::uint32_t layout_version = %d;\n", Version)
	fmt.Fprintf(&b, "inline constexpr std::size_t segment_bytes = %d;\n", Segment)
	fmt.Fprintf(&b, "inline constexpr std::size_t granule_bytes = %d;\n", extent.Granule)
	fmt.Fprintf(&b, "inline constexpr std::size_t free_classes = %d;\n", Classes)
	fmt.Fprintf(&b, "inline constexpr std::size_t max_key_bytes = %d;\n", MaxKey)
	fmt.Fprintf(&b, "inline constexpr std::uint32_t default_page_bytes = %d;\n", PageSize)
	fmt.Fprintf(&b, "inline constexpr std::uint32_t flag_pinned = %d, flag_unchecked = %d;\n\n", Pinned, Unchecked)
	b.WriteString("enum class State : std::uint32_t { reserved = 0, writing = 1, ready = 2, dead = 3 };\n")
	for _, r := range Layout {
		fmt.Fprintf(&b, "\n// %s\nstruct %s {\n", r.Means, r.Name)
		for _, f := range r.Fields {
			kind, count := "std::uint64_t", ""
			if f.Size == 4 {
				kind = "std::uint32_t"
			} else if f.Size > 8 {
				count = fmt.Sprintf("[%d]", f.Size/8)
			}
			fmt.Fprintf(&b, "    %s %s%s;\n", kind, f.Name, count)
		}
		b.WriteString("};\n")
		fmt.Fprintf(&b, "static_assert(sizeof(%s) == %d);\n", r.Name, r.Size)
		for _, f := range r.Fields {
			fmt.Fprintf(&b, "static_assert(offsetof(%s, %s) == %d);\n", r.Name, f.Name, f.Offset)
		}
	}
	b.WriteString("\n}  // namespace meridian::store\n\n#endif\n")
	golden.File(t, "../../../include/meridian/store_layout.hpp", []byte(b.String()))
}
