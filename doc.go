// Package stet is the root of the module; it holds no code but the tests that
// hold the layout together: which package may import which, that every package
// says what it owns, and where each required dependency is used.
package stet
