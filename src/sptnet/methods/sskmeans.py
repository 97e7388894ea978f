"""Semi-supervised k-means on the features of the pre-trained backbone: nothing is trained, labels are kept.

It is the GCD method without its training, and what a person with labels and little time wants.
"""

from sptnet.methods import kmeans
from sptnet.methods.method import Method

METHOD = Method(kmeans.stages, kmeans.head, clusters="semi-supervised")
