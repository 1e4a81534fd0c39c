// Package gcp is the adapter of Google Cloud.
package gcp
