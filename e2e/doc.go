// Package e2e has the end-to-end tests: the built binary as a process, real clients, a real S3 server. They see varve as users do and
// import nothing of it but what reads bytes. `make test` runs them; they need only Go. VARVE_BIN names a binary to test; without it
// the tests build one.
package e2e
