package view

// Worker is a cluster that jobs of another, its manager, are given to, as its reader may see it.
type Worker struct {
	// Name of its MultiKueueCluster.
	Name string
	// Picture of it; nil if it was not read, and Unread is why.
	Picture *Picture
	Unread  string
}
