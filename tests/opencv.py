"""OpenCV's reader of Caffe nets, the independent reference of float networks."""

import pytest


def read_net(prototxt, caffemodel):
    """Return the network of two files or two buffers; skip where this OpenCV has no reader."""
    cv2 = pytest.importorskip("cv2", reason="the reference is OpenCV's reader of Caffe nets")
    if not hasattr(cv2.dnn, "readNetFromCaffe"):
        pytest.skip("OpenCV 5 has no reader of Caffe nets")
    return cv2.dnn.readNetFromCaffe(prototxt, caffemodel)
