package term
import "context"
type Replica struct{ Socket, Path string }
func (r *Replica) Sync(ctx context.Context) error { return nil }
