// Package standin plays what operators expect of a world without which their objects never end: the dashboards of Ray
// clusters, and Spark's spark-submit. Both are components of the sandbox binary. How long a simulated job runs is in its
// annotation kwok.muster.dev/run-for, as for simulated pods; the default is a second.
package standin
