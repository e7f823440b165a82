//go:build !mutant

package mutant

// Is reports whether the build has this bug: no build without the tag has any.
func Is(Name) bool { return false }
