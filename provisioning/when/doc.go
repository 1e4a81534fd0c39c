// Package when compares times at which something is due.
package when
