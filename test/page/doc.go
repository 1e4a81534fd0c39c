// Package page looks at the page of muster-dashboard as people do: in a browser. Where
// there is no Chromium, its tests are skipped. With -artifacts they leave the pictures
// that they take.
package page
