"""Several replicas on one load: routers, prefill and decode apart, a closed load dealt over them."""
