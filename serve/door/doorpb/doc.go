// Package doorpb is the messages of the engine door, made of
// proto/meridian/door/v1/door.proto by `make generate`.
package doorpb
