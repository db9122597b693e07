// Package lint keeps the house in order as part of go test: the arrows of the package map, names, formatting, vet,
// staticcheck, and who may import the wire codec. It has no code of its own, only tests.
package lint
