package page

import "context"

func (s *Server) recall(ctx context.Context) { <-ctx.Done() }
