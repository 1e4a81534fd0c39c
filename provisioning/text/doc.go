// Package text has the amounts that messages name.
package text
