// Package page tests the page of muster-dashboard in a browser. Without Chromium, its tests are skipped. With -artifacts they save
// screenshots.
package page
