// Package view is what Muster's decisions look like from outside: a Picture of a
// cluster, decided on by the code that Muster itself runs, and what there is to say
// about each job, queue and group in it. The plugin kubectl muster writes it on a
// terminal, muster-dashboard shows it on a page. Nothing here changes the cluster.
package view
