"""TrainJob: its JobSet has the tree, and the annotations of the TrainJob apply to it where the JobSet has none."""

from cpg_api.integrations.trees import OwnerKind, no_tree
from cpg_api.meta import ObjectMeta
from cpg_api.structs import ApiStruct


class TrainJob(ApiStruct, frozen=True):
    """The metadata of a TrainJob: its JobSet says the rest."""

    metadata: ObjectMeta = ObjectMeta()


KIND = OwnerKind("trainjob", "trainer.kubeflow.org", ("v1alpha1",), "trainjobs", "TrainJob", TrainJob, no_tree)
