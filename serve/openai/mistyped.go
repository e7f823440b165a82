package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
)

// Mistyped tells a client, in the words of JSON, why what it sent cannot be read:
// param names the member that was read, or is "" for the whole body, and embedded
// are structs that stand in the path of a member by their Go names.
func Mistyped(param string, err error, embedded ...string) *Error {
	var mistyped *json.UnmarshalTypeError
	if !errors.As(err, &mistyped) {
		if param != "" {
			return Invalid(param, "%s cannot be read: %.256v", param, err)
		}
		return Invalid("", "the body is not such a request: %v", err)
	}
	isEmbedded := func(name string) bool { return name == "" || slices.Contains(embedded, name) }
	names := slices.DeleteFunc(append([]string{param}, strings.Split(mistyped.Field, ".")...), isEmbedded)
	member := ""
	if len(names) > 0 {
		member = names[0]
	}
	return Invalid(member, "%s: want %s, got %.64s", cmp.Or(strings.Join(names, "."), "the body"), wanted(mistyped.Type), mistyped.Value)
}

// wanted is what JSON calls the values of a Go type.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float64:
		return "a number"
	case reflect.Uint32, reflect.Uint64:
		return "a whole number that is not negative"
	}
	return "a whole number"
}
